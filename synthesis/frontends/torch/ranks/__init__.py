"""Captures what each rank of a parallel module runs. Nothing here imports torch before a worker
needs it."""

from synthesis.frontends.torch.ranks.request import RanksRequest
from synthesis.frontends.torch.ranks.result import Rank, RanksCaptured, Side, capture_ranks
from synthesis.frontends.torch.ranks.stated import LayoutLine, layout_for, read_lines

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
