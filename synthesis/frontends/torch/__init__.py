"""Captures PyTorch models as programs. Nothing here imports torch before a worker needs it."""
