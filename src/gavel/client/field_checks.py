"""Checks of single fields that people write, and how messages quote what they wrote."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

from gavel.errors import InputError
from gavel.limits import LARGEST, LONGEST_HOURS, LONGEST_LABEL, SMALLEST, as_float, at_most


class FieldError(InputError):
    """One field of a request is invalid."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def check_text(name: str, value: object) -> None:
    """Refuse NUL and invalid Unicode: system calls take bytes up to a NUL, the wire takes Unicode."""
    if not isinstance(value, str):
        raise FieldError(name, f"{name} must be text, not {shortened(value)}")
    if "\0" in value:
        raise FieldError(name, f"{name} contains a NUL character: {shortened(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldError(name, f"{name} contains invalid Unicode: {shortened(value)}") from None


def check_label(name: str, value: object, longest: int = LONGEST_LABEL) -> None:
    """Refuse text that tables cannot show, or that is too long for them."""
    check_text(name, value)
    if (fault := label_fault(str(value), longest)) is not None:
        raise FieldError(name, f"{name} {fault}: {shortened(value)}")


def label_fault(text: str, longest: int = LONGEST_LABEL) -> str | None:
    """Why a text cannot be a name in tables, as the second half of a sentence; None if it can.

    >>> label_fault("a100"), label_fault("a\\x1b[31m")
    (None, 'contains a character that cannot be printed')
    """
    if len(text) > longest:
        return f"has {len(text):,} characters, at most {longest:,} are allowed"
    return None if text.isprintable() else "contains a character that cannot be printed"


def check_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(name, f"{name} must be a number, not {shortened(value)}")
    number = as_float(value)
    if not math.isfinite(number):
        raise FieldError(name, f"{name} must be a finite number, not {shortened(value)}")
    return number


def check_positive_field(name: str, value: object, most: float = LARGEST) -> None:
    number = check_number(name, value)
    if number <= 0:
        raise FieldError(name, f"{name} must be greater than 0, not {number:g}")
    if number < SMALLEST:
        raise FieldError(name, f"{name} must be at least {SMALLEST:g}, not {number:g}")
    if number > most:
        years = " (317 years)" if most == LONGEST_HOURS else ""
        raise FieldError(name, f"{name} must be {at_most(most)}{years}, not {number:g}")


def check_whole(name: str, value: object, *, least: int, most: int) -> None:
    number = check_number(name, value)
    if number != int(number):
        raise FieldError(name, f"{name} must be a whole number, not {number:g}")
    if number < least:
        raise FieldError(name, f"{name} must be at least {least}, not {number:g}")
    if number > most:
        raise FieldError(name, f"{name} must be at most {most:,}, not {number:g}")


def shortened(value: object, most: int = 60) -> str:
    """A value in a form that a sentence can quote.

    >>> shortened("x" * 100, most=12), shortened(10**5000)
    ("'xxxxxxxx...", 'a number of thousands of digits')
    """
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print such integers
        return "a number of thousands of digits"
    return text if len(text) <= most else text[: most - 3] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest what may have been meant, as the second half of a sentence.

    >>> nearest("step", ["steps", "types"]), nearest("x", ["steps", "types"])
    ("did you mean 'steps'?", 'there are: steps, types')
    """
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=2)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(choices)}"
