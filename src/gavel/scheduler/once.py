"""A property that is worked out once, when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class once(Generic[Value]):  # noqa: N801 - read like `property`
    """A property that is worked out when first asked for; unlike functools.cached_property it takes no lock."""

    def __init__(self, work: Callable[[Any], Value]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Value:
        value = instance.__dict__[self._name] = self._work(instance)
        return value
