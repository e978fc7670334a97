"""From a clone of a whole repository to training steps: `python -m benchmarks.repositories`."""
