"""User code: `module.NAME` is an object in a module that Python can import. Owns how it is found and named in errors.

What the object must be is up to `policies.user_defined` and `scheduler.user_defined`.
"""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gavel.core.errors import InputError


def is_user_defined(name: str) -> bool:
    """Whether a name is that of a user-defined policy or mechanism: built-in names have no dot."""
    return "." in name


def find(what: str, name: str, wanted: str) -> Any:
    """The object at `module.NAME`, or None. `what` ("policy") and `wanted` ("a Policy") describe it in errors."""
    module, _, attribute = name.rpartition(".")
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"{what} {name}: write module.NAME, where NAME is {wanted} in a module of your own")
    try:
        return getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{what} {name}: there is no module {error.name!r}; install it, or put its directory on PYTHONPATH"
        ) from error
    except Exception as error:
        raise InputError(f"{what} {name}: {module!r} cannot be imported: {told(error, name)}") from error


def misfit(what: str, name: str, found: Any, wanted: str) -> InputError:
    """The error for a NAME that is missing or not what is wanted."""
    module, _, attribute = name.rpartition(".")
    is_what = "does not exist" if found is None else f"is a {type(found).__name__}"
    return InputError(f"{what} {name}: {attribute!r} of {module!r} {is_what}; it must be {wanted}")


def file_of(name: str) -> Path | None:
    """The file that defines `module.NAME`."""
    module = name.rpartition(".")[0]
    loaded = sys.modules.get(module)
    if loaded is not None:
        file = getattr(loaded, "__file__", None)
        return Path(file) if file else None
    spec = find_spec(module)
    return Path(spec.origin) if spec and spec.has_location and spec.origin else None


def told(error: Exception, name: str) -> str:
    """An error in user code, with the line of its file."""
    file = file_of(name)
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename == str(file)
    ]
    where = f" ({file.name}, line {lines[-1]})" if file and lines else ""
    return f"{type(error).__name__}: {error}{where}"
