"""Scheduling policies: pure functions from a Problem to an Allocation, each a few lines on top of a Program."""
