"""Concrete programs of thousands of ranks, read as one program and verified."""

from synthesis.frontends.rank_programs.findings import Finding, Ingested, RankClass
from synthesis.frontends.rank_programs.read import read_ranks
from synthesis.frontends.rank_programs.verify import RanksVerdict, judged, verify_ranks
from synthesis.frontends.rank_programs.write import rank_texts

__all__ = [
    "Finding",
    "Ingested",
    "RankClass",
    "RanksVerdict",
    "judged",
    "rank_texts",
    "read_ranks",
    "verify_ranks",
]
