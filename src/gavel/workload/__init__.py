"""Workloads: traces of jobs that arrive over time, generated or read from files. What happens to them is not here."""
