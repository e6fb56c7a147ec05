"""Gavel."""
