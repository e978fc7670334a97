"""Real numbers as canonical expressions: equal functions are, wherever that is found, one object."""

from verifier.domains.algebra.domain import Algebra
from verifier.domains.algebra.expressions import Budget, Exceeded, Expr

__all__ = ["Algebra", "Budget", "Exceeded", "Expr"]
