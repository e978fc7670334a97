"""PyTorch models made parallel, and proved right: what programs import.

    import shardproof

    plan = shardproof.parallelize("model.py:GPT", mesh="dp=2,tp=2")
    print(plan.diff)

Nothing is imported before it is asked for; errors are `ShardproofError`, with what, where and what
to try.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardproof.agent.run.errors import ShardproofError
    from shardproof.api import (
        Ended,
        Repair,
        assert_parallel_equal,
        check,
        command,
        load_problem,
        parallelize,
        repair,
        verify,
    )
    from shardproof.planned import Plan
    from shardproof.verifier.kernel.contract import Contract
    from shardproof.verifier.problem import Problem
    from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict

HOME = {
    "Contract": "shardproof.verifier.kernel.contract",
    "Counterexample": "shardproof.verifier.verdict",
    "Ended": "shardproof.api",
    "Plan": "shardproof.planned",
    "Problem": "shardproof.verifier.problem",
    "Proof": "shardproof.verifier.verdict",
    "Repair": "shardproof.api",
    "ShardproofError": "shardproof.agent.run.errors",
    "Unknown": "shardproof.verifier.verdict",
    "Verdict": "shardproof.verifier.verdict",
    "assert_parallel_equal": "shardproof.api",
    "check": "shardproof.api",
    "command": "shardproof.api",
    "load_problem": "shardproof.api",
    "parallelize": "shardproof.api",
    "repair": "shardproof.api",
    "verify": "shardproof.api",
}
__all__ = [
    "Contract",
    "Counterexample",
    "Ended",
    "Plan",
    "Problem",
    "Proof",
    "Repair",
    "ShardproofError",
    "Unknown",
    "Verdict",
    "assert_parallel_equal",
    "check",
    "command",
    "load_problem",
    "parallelize",
    "repair",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
