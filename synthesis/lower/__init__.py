"""From a one-device program and where its inputs live to a distributed program."""

from shardproof.synthesis.lower.program import Ahead, Lowering, lower
from shardproof.synthesis.lower.state import Choices, Lowered, LoweringError, Move, Pair, Placed

__all__ = [
    "Ahead",
    "Choices",
    "Lowered",
    "Lowering",
    "LoweringError",
    "Move",
    "Pair",
    "Placed",
    "lower",
]
