"""Models of packages that nobody tuned: `python -m benchmarks.wild`."""
