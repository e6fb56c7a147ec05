"""The errors that users meet. Each message is one sentence that names the value and says what to do about it."""

import shlex


class GavelError(Exception):
    """Anything that Gavel reports to its user instead of crashing."""


class InputError(GavelError, ValueError):
    """What was asked cannot be answered as it was asked: a malformed file, an impossible combination."""


class NotInstalledError(InputError, ImportError):
    """Something was asked for that needs a package that is not installed.

    >>> print(NotInstalledError("a plot", "matplotlib", "gavel-scheduler[plots]"))
    a plot needs matplotlib, which is not installed; run: pip install 'gavel-scheduler[plots]'
    """

    def __init__(self, what: str, needs: str, package: str) -> None:
        super().__init__(f"{what} needs {needs}, which is not installed; run: pip install {shlex.quote(package)}")


class SolverError(GavelError, RuntimeError):
    """No solver reached an answer that its own certificate confirms."""


class TimeLimitError(SolverError):
    """An answer would take, or has taken, longer than there is time."""
