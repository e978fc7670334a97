"""Terms that are equal though their normal forms differ: laws of tensor algebra, step by step."""

from verifier.provers.rewrite.search import Budget, Found, Step, replay, same_terms

__all__ = ["Budget", "Found", "Step", "replay", "same_terms"]
