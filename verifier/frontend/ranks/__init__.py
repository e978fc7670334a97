"""Captures what each rank of a parallel module runs. Nothing here imports torch before a worker
needs it."""

from verifier.frontend.ranks.request import RanksRequest
from verifier.frontend.ranks.result import Rank, RanksCaptured, Side, capture_ranks
from verifier.frontend.ranks.stated import LayoutLine, layout_for, read_lines

__all__ = [
    "LayoutLine",
    "Rank",
    "RanksCaptured",
    "RanksRequest",
    "Side",
    "capture_ranks",
    "layout_for",
    "read_lines",
]
