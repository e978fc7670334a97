"""Parallel code of public repositories that we did not write, as it stands in a clone."""
