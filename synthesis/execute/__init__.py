"""Runs an emitted patch on local processes and compares it with one process."""

from synthesis.execute.job import (
    Difference,
    ExecuteError,
    RunResult,
    collect_facts,
    execute,
)

__all__ = ["Difference", "ExecuteError", "RunResult", "collect_facts", "execute"]
