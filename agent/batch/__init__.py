"""Many models in one run: a manifest of jobs, a process for each, one summary of all."""
