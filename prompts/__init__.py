"""Prompt texts with named holes. Imports nothing of the other packages."""
