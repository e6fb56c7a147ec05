"""What can go wrong inside a training program because of Gavel, each as one sentence."""

from gavel.errors import GavelError


class TrainingError(GavelError, RuntimeError):
    """The training cannot go on."""


class CheckpointError(TrainingError):
    """A checkpoint could not be written, or none could be read."""


class GangError(TrainingError):
    """The workers of a distributed job have lost each other, or do not agree."""
