"""Composite ops: each is written out in primitive ones, which is all that a proof sees of it.

Loaded for a program that has one. Importing this package fills the registry with all its modules.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
