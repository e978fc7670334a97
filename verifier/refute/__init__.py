"""Runs programs on numbers, to show a difference."""
