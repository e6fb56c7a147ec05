"""Ids that come over the network and become parts of paths: what may be one."""

from __future__ import annotations

from urllib.parse import quote

LONGEST_ID = 18
"""Digits of a job id: more do not fit into an integer of the database."""
LONGEST_FILE_NAME = 150
"""Bytes of an id in the name of a file; file systems take 255, and suffixes follow."""


def is_job_id(text: str) -> bool:
    """Whether the scheduler may have given this id.

    >>> [is_job_id(text) for text in ("17", "", "..", "1/2", "9" * 10_000)]
    [True, False, False, False, False]
    """
    return text.isascii() and text.isdecimal() and len(text) <= LONGEST_ID


def is_file_name(job: str) -> bool:
    """Whether an agent can name a file or directory after a job; it takes ids from any version of the scheduler.

    >>> [is_file_name(text) for text in ("17", "a/b", "", ".", "..", "9" * 10_000)]
    [True, True, False, False, False, False]
    """
    return job not in ("", ".", "..") and "\0" not in job and len(file_name(job)) <= LONGEST_FILE_NAME


def file_name(job: str) -> str:
    """An id as the name of a file or directory, without separators.

    >>> file_name("a/b")
    'a%2Fb'
    """
    return quote(job, safe="")
