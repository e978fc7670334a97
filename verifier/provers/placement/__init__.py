"""How placements pass through ops, as the provers have it: the checker has rules of its own.

A rule is of one kind of ops, or of the ops that it names.
"""

from importlib import import_module
from pkgutil import iter_modules

from shardproof.verifier.provers.placement.rule import Operands, Placed, place

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Operands", "Placed", "place"]
