"""Repairs of a wrong program by structured edits, each verified anew before it is offered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verifier.repair.edits import KINDS, Edit, Kind, apply
from verifier.repair.frame import contract_values, keeps, own_part
from verifier.repair.offers import repairs
from verifier.repair.textual import rewritten, written

if TYPE_CHECKING:
    from verifier.repair.search import NotRepaired, Repaired, repair

__all__ = [
    "KINDS",
    "Edit",
    "Kind",
    "NotRepaired",
    "Repaired",
    "apply",
    "contract_values",
    "keeps",
    "own_part",
    "repair",
    "repairs",
    "rewritten",
    "written",
]


def __getattr__(name: str) -> Any:
    """The search stands on `verify`, which reads this package: it is loaded when asked for."""
    if name in ("repair", "Repaired", "NotRepaired"):
        from verifier.repair import search

        return getattr(search, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
