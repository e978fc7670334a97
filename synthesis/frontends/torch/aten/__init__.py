"""Aten ops in ops of the language, one small rule each. Importing this package fills the table."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
