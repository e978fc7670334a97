"""Concrete programs of thousands of ranks, read as one program and verified."""

from verifier.ingest.findings import Finding, Ingested, RankClass
from verifier.ingest.read import read_ranks
from verifier.ingest.verify import RanksVerdict, judged, verify_ranks
from verifier.ingest.write import rank_texts, write_ranks

__all__ = [
    "Finding",
    "Ingested",
    "RankClass",
    "RanksVerdict",
    "judged",
    "rank_texts",
    "read_ranks",
    "verify_ranks",
    "write_ranks",
]
