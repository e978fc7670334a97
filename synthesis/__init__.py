"""From a program to a plan, its parallel program, a patch, and a run of it."""
