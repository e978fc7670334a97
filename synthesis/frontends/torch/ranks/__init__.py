"""Captures what each rank of a parallel module runs. Nothing here imports torch before a worker
needs it."""
