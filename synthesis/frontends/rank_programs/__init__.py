"""Concrete programs of thousands of ranks, read as one program and verified."""

from shardproof.synthesis.frontends.rank_programs.findings import (
    Finding as Finding,
    Ingested as Ingested,
    RankClass as RankClass,
)
from shardproof.synthesis.frontends.rank_programs.read import read_ranks as read_ranks
from shardproof.synthesis.frontends.rank_programs.verify import judged as judged
