"""Lemmas for all sizes, proved by Z3: the index arithmetic under the placement rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verifier import smt


@dataclass(frozen=True, slots=True)
class Lemma:
    name: str
    says: str
    prove: Callable[[], smt.Answer]


LEMMAS: dict[str, Lemma] = {}
