"""Global terms: hash-consed expressions over the inputs of the one-device program, in normal form.

A `Ref` is an exact rational times a term. The constructors normalise as they build: linear
combinations and products are flat and sorted, rational factors are pulled out of linear ops,
views compose, elementwise ops read through broadcasts, casts are the identity over the reals.
Two values are known to be equal when their refs are equal. Every rewrite here is an identity of
real arithmetic that holds for all values; none cancels a factor that could be zero.
"""

from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.terms.refs import Ref, Term, times
from shardproof.verifier.terms.table import Terms

__all__ = ["ONE", "Ref", "Term", "Terms", "times"]
