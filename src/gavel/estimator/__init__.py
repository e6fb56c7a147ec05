"""Estimates of job speeds, alone and in pairs, from tables and from measurements while jobs run."""
