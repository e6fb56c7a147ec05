"""The errors of the whole system, under the name by which the layers above the client know them."""

from gavel.errors import GavelError, InputError, NotInstalledError, SolverError, TimeLimitError

__all__ = ["GavelError", "InputError", "NotInstalledError", "SolverError", "TimeLimitError"]
