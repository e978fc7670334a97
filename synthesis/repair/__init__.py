"""Repairs of a wrong program by structured edits, each verified anew before it is offered."""

from typing import TYPE_CHECKING, Any

from synthesis.repair.edits import KINDS, Edit, Kind, apply
from synthesis.repair.frame import contract_values, keeps, own_part
from synthesis.repair.offers import repairs
from synthesis.repair.textual import rewritten, written

if TYPE_CHECKING:
    from synthesis.repair.search import NotRepaired, Repaired, repair

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
        from synthesis.repair import search

        return getattr(search, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
