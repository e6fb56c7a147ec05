"""Plots and pages: what a run or a sweep looks like. Only this package draws, and only it needs matplotlib."""

from importlib.util import find_spec

from gavel.errors import NotInstalledError

if find_spec("matplotlib") is None:
    raise NotInstalledError("a plot", "matplotlib", "gavel-scheduler[plots]")
