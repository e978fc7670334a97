"""The programs of all ranks, read from files and judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shardproof.synthesis.frontends.rank_programs import Ingested, judged, read_ranks
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.verdict import Verdict


@dataclass(frozen=True)
class RanksVerdict:
    """The verdict on the programs of all ranks, with what was read."""

    verdict: Verdict
    ingested: Ingested


def verify_ranks(
    sequential: Program,
    path: Path,
    contract: Contract,
    consts: Mapping[str, Array] | None = None,
) -> RanksVerdict:
    read = read_ranks(path)
    return RanksVerdict(judged(sequential, read, contract, consts), read)
