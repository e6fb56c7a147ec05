"""Reruns the paper's evaluation: studies, their measurements, and checks of the paper's claims."""
