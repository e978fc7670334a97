"""The ops: one declaration each. Importing this package fills the registry with all its modules."""

from importlib import import_module
from pkgutil import iter_modules

from shardproof.verifier.kernel.program.registry import (
    REGISTRY as REGISTRY,
    REQUIRED as REQUIRED,
    Op as Op,
    Refused as Refused,
    Site as Site,
    infer_types as infer_types,
    lookup as lookup,
    register as register,
)

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

OWN = frozenset(REGISTRY)
"""Ops that are declared here; others are loaded where a program has one."""
