"""Values of a job's secrets on their way to its processes: no repr, document or pickle of them shows a value.

Here are also the rules for names and values, which clients and the scheduler check. No message quotes a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from gavel.errors import InputError
from gavel.limits import LONGEST_LABEL, LONGEST_SECRET, MOST_SECRET_BYTES, MOST_SECRETS

HIDDEN = "(hidden)"
"""What is shown instead of a value."""
OWN_PREFIX = "GAVEL_"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretValues(Mapping[str, str]):
    """Secrets by name, immutable.

    >>> SecretValues({"TOKEN": "abc"}), list(SecretValues({"TOKEN": "abc"}))
    (SecretValues(TOKEN=(hidden)), ['TOKEN'])
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"SecretValues({', '.join(f'{name}={HIDDEN}' for name in self._values)})"

    def __copy__(self) -> SecretValues:
        return self

    def __deepcopy__(self, memo: Any) -> SecretValues:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets cannot be pickled: their values must not reach a file")


def check_names(names: Iterable[object]) -> None:
    """Refuse names that cannot be environment variables of a job."""
    listed = list(names)
    if len(listed) > MOST_SECRETS:
        raise InputError(f"secrets has {len(listed):,} entries; a job has at most {MOST_SECRETS}")
    for name in listed:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(
                f"secrets: {_quoted(name)} cannot be the name of a variable; use letters, digits and underscores"
            )
        if len(name) > LONGEST_LABEL:
            raise InputError(f"secrets: a name has {len(name):,} characters, at most {LONGEST_LABEL} are allowed")
        if name.startswith(OWN_PREFIX):
            raise InputError(f"secrets: {name} begins with {OWN_PREFIX}, which is reserved; choose another name")
        if listed.count(name) > 1:
            raise InputError(f"secrets names {name} twice; keep one")


def check_values(values: Mapping[str, object]) -> None:
    """Refuse values that cannot be in a job's environment; no message quotes one."""
    total = 0
    for name, value in values.items():
        size = _size(name, value)
        if size > LONGEST_SECRET:
            raise InputError(f"secrets: the value of {name} has {size:,} bytes, at most {LONGEST_SECRET:,} are allowed")
        total += size
    if total > MOST_SECRET_BYTES:
        raise InputError(
            f"secrets: the values have {total:,} bytes together, at most {MOST_SECRET_BYTES:,} are allowed"
        )


def _size(name: str, value: object) -> int:
    fault = f"secrets: the value of {name} must be text without NUL characters, in valid Unicode"
    if not isinstance(value, str) or "\0" in value:
        raise InputError(fault)
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InputError(fault) from None


def _quoted(name: object) -> str:
    """A faulty name; one that is not text may be a value in the wrong place."""
    return ascii(name[:40]) if isinstance(name, str) else f"a {type(name).__name__}"


def from_environment(names: Iterable[str], environment: Mapping[str, str] | None = None) -> SecretValues:
    """Values from the submitter's own environment, under the same names."""
    return SecretValues({name: from_variable(name, environment) for name in names})


def from_variable(variable: str, environment: Mapping[str, str] | None = None) -> str:
    """The value of an environment variable."""
    found = (os.environ if environment is None else environment).get(variable)
    if found is None:
        raise InputError(
            f"the environment variable {ascii(variable)[1:-1]} is not set, and a secret is to be read from it; set it"
        )
    return found


def from_file(path: str) -> str:
    """The contents of a file, without the line break at its end."""
    try:
        with Path(path).open("rb") as file:
            body = file.read(LONGEST_SECRET + len("\r\n") + 1)
        text = body.decode(errors="replace" if len(body) > LONGEST_SECRET else "strict")  # refused by its size
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise InputError(f"cannot read the secret in {path!a}: {reason}") from None
    except ValueError:
        raise InputError(f"cannot read the secret in {path!a}: it is not UTF-8 text") from None
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")
