"""The errors that users see. Each message is one sentence that names the value and says what to do about it."""

import shlex


class GavelError(Exception):
    """An error that Gavel reports to its user instead of crashing."""


class InputError(GavelError, ValueError):
    """The request cannot be answered as it is: a malformed file, an impossible combination."""


class NotInstalledError(InputError, ImportError):
    """A feature needs a package that is not installed.

    >>> print(NotInstalledError("a plot", "matplotlib", "gavel-scheduler[plots]"))
    a plot needs matplotlib, which is not installed; run: pip install 'gavel-scheduler[plots]'
    """

    def __init__(self, what: str, needs: str, package: str) -> None:
        super().__init__(f"{what} needs {needs}, which is not installed; run: pip install {shlex.quote(package)}")


class SolverError(GavelError, RuntimeError):
    """No solver reached an answer that its own certificate confirms."""


class TimeLimitError(SolverError):
    """A solve would take, or has taken, longer than the time limit."""
