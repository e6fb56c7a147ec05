"""What a job waits for: other jobs, by id or by name within one submission, and how they must have ended."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gavel.errors import InputError

CONDITIONS = ("ok", "any", "failed")
_ARRAY = re.compile(r"a[1-9]\d*")


@dataclass(frozen=True, slots=True)
class Dependency:
    """One thing to wait for.

    >>> Dependency.of("38"), Dependency.of("prepare:any")
    (Dependency(reference='38', condition='ok'), Dependency(reference='prepare', condition='any'))
    """

    reference: str
    """The id of a job or array, or the name of a job in the same submission."""
    condition: str = "ok"
    """`ok`: it completed; `any`: it ended; `failed`: it failed or was cancelled."""

    @classmethod
    def of(cls, text: str) -> Dependency:
        """Read ID, NAME, ID:CONDITION or NAME:CONDITION."""
        reference, colon, condition = text.rpartition(":")
        if not colon:
            reference, condition = text, "ok"
        if condition not in CONDITIONS:
            raise InputError(f"{text!r} ends with the condition {condition!r}; the conditions are ok, any and failed")
        if not reference:
            raise InputError(f"{text!r} names no job; write ID, ID:ok, ID:any or ID:failed")
        return cls(reference, condition)

    @property
    def by_id(self) -> bool:
        """Whether the reference is an id, and not a name."""
        return self.reference.isdecimal() or is_array_id(self.reference)

    def __str__(self) -> str:
        return f"{self.reference}:{self.condition}"


def is_array_id(text: str) -> bool:
    """Whether a text is the id of an array: `a` and the id of its first job.

    >>> is_array_id("a38"), is_array_id("38"), is_array_id("a038")
    (True, False, False)
    """
    return _ARRAY.fullmatch(text) is not None
