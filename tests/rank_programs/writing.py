"""Programs of all ranks, written where `read_ranks` finds them."""

from __future__ import annotations

import gzip
from pathlib import Path

from benchmarks.rank_texts import rank_texts
from shardproof.synthesis.frontends.rank_programs.container import HEADER
from shardproof.synthesis.frontends.rank_programs.form import header
from shardproof.verifier.kernel.program.program import Program


def write_ranks(program: Program, path: str | Path) -> None:
    """Into the folder `path`, or one file if the name ends in `.spz` (gzip) or `.sp`."""
    target = Path(path)
    first, texts = f"{header(program.name, program.mesh)}\n", rank_texts(program)
    if target.suffix in (".spz", ".sp"):
        packed = target.suffix == ".spz"
        with gzip.open(target, "wb", compresslevel=1) if packed else target.open("wb") as out:
            out.write(first.encode())
            for _, text in texts:
                out.write(text)
        return
    target.mkdir(parents=True, exist_ok=True)
    (target / HEADER).write_text(first, encoding="utf-8")
    for rank, text in texts:
        (target / f"rank-{rank:05d}.sp").write_bytes(text)
