"""The paper's evaluation, run again: studies, what they measure, and the paper's claims checked against it."""
