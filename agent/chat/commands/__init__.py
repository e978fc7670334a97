"""The slash commands, a module for each group of them."""

import importlib

MODULES = ("subject", "planning", "verdicts", "changes", "model", "session")


def declare() -> None:
    """Import every module, so that its commands are in the registry."""
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
