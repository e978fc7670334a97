"""Runs an emitted patch on local processes and compares it with one process."""
