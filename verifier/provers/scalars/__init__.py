"""Every rank run on expressions, every element of every output compared: no placement rule.

What is found holds for the extents and the mesh at hand, for all float inputs. `decide` compares
canonical forms (`verifier/domains/algebra`) and knows laws of the real functions; `asking`
asks Z3, with functions uninterpreted. Both are for small extents: beside the relations where the
deciders are held against each other, and in their place where a program is written so differently
that no relation is found.
"""

from verifier.provers.scalars.answers import Decision, Differs, DisagreementError, Equal, Undecided
from verifier.provers.scalars.deciding import decide

__all__ = [
    "Decision",
    "Differs",
    "DisagreementError",
    "Equal",
    "Undecided",
    "decide",
]
