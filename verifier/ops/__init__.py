"""What is known of ops besides what the kernel holds of them: one description each.

Importing this package loads all its modules. An op that the kernel does not declare is one file
here, which does both. The checker loads this room for a program that has such an op alone.
"""

from importlib import import_module
from pkgutil import iter_modules

from shardproof.verifier.kernel import composites as composites, movements as movements, ops as ops
from shardproof.verifier.kernel.program.registry import REGISTRY
from shardproof.verifier.ops.facets import Facets, compares, describe, facets

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["REGISTRY", "Facets", "compares", "describe", "facets"]
