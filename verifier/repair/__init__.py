"""Repairs of a wrong program by structured edits, each verified anew before it is offered."""

from verifier.repair.edits import KINDS, Edit, Kind, apply
from verifier.repair.offers import repairs

__all__ = ["KINDS", "Edit", "Kind", "apply", "repairs"]
