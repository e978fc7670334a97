"""Walks a distributed program and finds, for every value, how it relates to the one-device program.

A fact says: on some ranks, the pieces of this value make up, read by `layout`, `ref`: an exact
multiple of a global term. Facts follow from facts by the placement rule of each op, so a fact
holds for all inputs. A value may have several facts, each true; none means no rule applied.
"""

from verifier.provers.relate.facts import Break, Fact, Related, describe
from verifier.provers.relate.goal import equal_otherwise, initial, satisfied
from verifier.provers.relate.peeling import relate_peeled
from verifier.provers.relate.rules import Rules
from verifier.provers.relate.walk import relate

__all__ = [
    "Break",
    "Fact",
    "Related",
    "Rules",
    "describe",
    "equal_otherwise",
    "initial",
    "relate",
    "relate_peeled",
    "satisfied",
]
