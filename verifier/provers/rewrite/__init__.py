"""Terms that are equal though their normal forms differ: laws of tensor algebra, step by step."""

from verifier.provers.rewrite.search import Budget, Found, same_terms
from verifier.provers.rewrite.steps import Path, Step, follow, written

__all__ = ["Budget", "Found", "Path", "Step", "follow", "same_terms", "written"]
