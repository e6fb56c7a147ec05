"""The version, in one place: the build reads it from here and `gavel --version` prints it."""

__version__ = "0.4.0"
