"""The programs of all ranks as one: joined in memory where all ranks run the same ops, else by the
texts of every rank."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shardproof.synthesis.frontends.rank_programs import Ingested, read_ranks
from shardproof.synthesis.frontends.rank_programs.findings import RankClass
from shardproof.synthesis.frontends.rank_programs.form import header
from shardproof.synthesis.frontends.rank_programs.rings import with_rings
from shardproof.synthesis.frontends.rank_programs.write import rank_text
from shardproof.synthesis.frontends.torch.ranks.buckets import one_by_one
from shardproof.synthesis.frontends.torch.ranks.join import RankError, gathers_by_dim, join
from shardproof.synthesis.frontends.torch.ranks.shared_parts import products_of_wholes
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.ops.classes import MESSAGES


def together(
    programs: Mapping[int, Program], texts: Path, progress: Callable[[str], None] | None = None
) -> Ingested:
    """The one program that every rank runs, of which `programs` are all, or as many as tell what
    it is, by the number of the rank. Ranks that run different ops, or send messages, are written
    to the folder `texts` and read from there.

    Raises:
        RankError: some ranks are not given, and no one program is what all run.
    """
    given = list(programs.values())
    mesh = given[0].mesh
    coords = mesh.coords()
    if not any(n.op in MESSAGES or n.body is not None for n in given[0].nodes):
        try:
            joined = join([(coords[number], program) for number, program in programs.items()])
            ranks = RankClass(tuple(range(mesh.size)), len(joined.nodes), "")
            return Ingested(joined, (ranks,), (), {"ranks": mesh.size, "classes": 1}, str(mesh))
        except RankError:
            if len(given) < mesh.size:
                raise
    write_texts(given, texts)
    return read_ranks(texts, progress)


def ordinary(program: Program) -> Program:
    """The program with collectives along the dims that they join, tensors of one bucket sent one
    by one, and what ranks compute of parts that they share as parts of what they compute of
    wholes."""
    return products_of_wholes(gathers_by_dim(one_by_one(program)))


def write_texts(programs: Sequence[Program], folder: Path) -> None:
    """Write the program of each rank as `read_ranks` reads it. Messages around a ring become
    collectives."""
    folder.mkdir(parents=True, exist_ok=True)
    mesh = programs[0].mesh
    (folder / "mesh.sp").write_text(f"{header('ranks', mesh)}\n", encoding="utf-8")
    texts = [rank_text(program, rank).decode() for rank, program in enumerate(programs)]
    for rank, text in enumerate(with_rings(texts, mesh)):
        (folder / f"rank-{rank:05d}.sp").write_text(text, encoding="utf-8")
