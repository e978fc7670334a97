"""Real numbers as canonical expressions: equal functions are, where that is found, one object."""

from shardproof.verifier.domains.algebra.domain import Algebra
from shardproof.verifier.domains.algebra.expressions import Budget, ExceededError, Expr

__all__ = ["Algebra", "Budget", "ExceededError", "Expr"]
