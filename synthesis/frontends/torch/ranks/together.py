"""The programs of all ranks as one: joined in memory where all ranks run the same ops, else by the
texts of every rank."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shardproof.synthesis.frontends.rank_programs import Ingested, read_ranks
from shardproof.synthesis.frontends.rank_programs.findings import RankClass
from shardproof.synthesis.frontends.rank_programs.form import header
from shardproof.synthesis.frontends.rank_programs.rings import with_rings
from shardproof.synthesis.frontends.rank_programs.write import rank_text
from shardproof.synthesis.frontends.torch.ranks.buckets import one_by_one
from shardproof.synthesis.frontends.torch.ranks.gathered_sums import sums_of_gathers
from shardproof.synthesis.frontends.torch.ranks.join import RankError, gathers_by_dim, join
from shardproof.synthesis.frontends.torch.ranks.rooted import as_roots_do
from shardproof.synthesis.frontends.torch.ranks.shared_parts import products_of_wholes
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import MESSAGES, PIECES


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
    if not any(n.op in MESSAGES or n.body is not None for n in given[0].nodes):
        try:
            return _joined(programs)
        except RankError:
            roots = as_roots_do(programs)
            if roots is not None:
                with suppress(RankError):
                    return _joined(roots)
            if len(given) < mesh.size:
                raise
    write_texts(given, texts)
    return read_ranks(texts, progress)


def _joined(programs: Mapping[int, Program]) -> Ingested:
    """Raises RankError, as `join`."""
    mesh = next(iter(programs.values())).mesh
    coords = mesh.coords()
    joined = join([(coords[number], program) for number, program in programs.items()])
    ranks = RankClass(tuple(range(mesh.size)), len(joined.nodes), "")
    return Ingested(joined, (ranks,), (), {"ranks": mesh.size, "classes": 1}, str(mesh))


def in_one_shape(programs: Mapping[int, Program]) -> dict[int, Program]:
    """The programs with tensors that ranks reduce or broadcast together in the shape of the first
    rank's. A backend takes them entry by entry, as they lie in memory, whatever their shapes: only
    for tensors without gaps."""
    leader = programs[min(programs)]
    first = {key: shape for key, (_, shape) in _exchanged(leader).items()}
    out: dict[int, Program] = {}
    for rank, program in programs.items():
        apart = {
            at: first[key]
            for key, (at, shape) in _exchanged(program).items()
            if key in first and shape != first[key] and math.prod(shape) == math.prod(first[key])
        }
        out[rank] = _reshaped(program, apart) if apart else program
    return out


def _exchanged(program: Program) -> dict[tuple[object, ...], tuple[int, tuple[int, ...]]]:
    """By the op, its attributes, and how many of these are before it: its place, and the shape."""
    count: Counter[tuple[object, ...]] = Counter()
    out: dict[tuple[object, ...], tuple[int, tuple[int, ...]]] = {}
    for at, node in enumerate(program.nodes):
        if lookup(node.op).traits.meets and node.op not in PIECES:
            kind = (node.op, *sorted((k, str(v)) for k, v in node.attrs.items()))
            out[(*kind, count[kind])] = at, program.types[node.inputs[0]].shape
            count[kind] += 1
    return out


def _reshaped(program: Program, shapes: Mapping[int, tuple[int, ...]]) -> Program:
    nodes: list[Node] = []
    types = dict(program.types)
    for at, node in enumerate(program.nodes):
        if at not in shapes:
            nodes.append(node)
            continue
        given, made = (f"{v}.{at}.shaped" for v in (node.inputs[0], node.outputs[0]))
        own = types[node.outputs[0]]
        types[given] = types[made] = replace(own, shape=shapes[at])
        there = Node("reshape", node.inputs, (given,), {"shape": shapes[at]}, node.source)
        back = Node("reshape", (made,), node.outputs, {"shape": own.shape}, node.source)
        nodes += [there, replace(node, inputs=(given,), outputs=(made,)), back]
    return replace(program, nodes=tuple(nodes), types=types)


def ordinary(program: Program) -> Program:
    """The program with collectives along the dims that they join, tensors of one bucket sent one
    by one, sums of what is gathered as all_reduces, and what ranks compute of parts that they share
    as parts of what they compute of wholes."""
    return products_of_wholes(sums_of_gathers(gathers_by_dim(one_by_one(program))))


def write_texts(programs: Sequence[Program], folder: Path) -> None:
    """Write the program of each rank as `read_ranks` reads it. Messages around a ring become
    collectives."""
    folder.mkdir(parents=True, exist_ok=True)
    mesh = programs[0].mesh
    (folder / "mesh.sp").write_text(f"{header('ranks', mesh)}\n", encoding="utf-8")
    texts = [rank_text(program, rank).decode() for rank, program in enumerate(programs)]
    for rank, text in enumerate(with_rings(texts, mesh)):
        (folder / f"rank-{rank:05d}.sp").write_text(text, encoding="utf-8")
