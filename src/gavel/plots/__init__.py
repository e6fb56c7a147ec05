"""Plots and pages: what a run or a sweep looks like. Only this package draws."""
