"""Workloads: traces of jobs that arrive over time, generated or read from files. Running them happens elsewhere."""
