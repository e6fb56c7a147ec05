"""The errors that users meet. Each message is one sentence that names the value and says what to do about it."""


class GavelError(Exception):
    """Anything that Gavel reports to its user instead of crashing."""


class InputError(GavelError, ValueError):
    """What was asked cannot be answered as it was asked: a malformed file, an impossible combination."""


class SolverError(GavelError, RuntimeError):
    """No solver reached an answer that its own certificate confirms."""


class TimeLimitError(SolverError):
    """An answer would take, or has taken, longer than there is time."""
