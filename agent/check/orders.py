"""Inputs and outputs of which each rank holds rows from several places.

`--input-layout "ids=zigzag(1)@cp"` says of N ranks that rank r holds the chunks r and 2N-1-r of 2N,
`striped(1)@cp` that it holds every N-th row. The one-device program is compared on its rows in the
order in which the ranks have them: a permutation, after which each rank holds a chunk.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardproof.agent.check.contract import Placed, Statements
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.aten.table import content_name
from shardproof.synthesis.frontends.torch.ranks.pairing import GRAD_OF_INPUT
from shardproof.synthesis.frontends.torch.ranks.permuted_rows import Chunks, permuted
from shardproof.synthesis.frontends.torch.ranks.result import Rank, RanksCaptured
from shardproof.synthesis.frontends.torch.ranks.stated import LayoutLine, RowOrder, order_of
from shardproof.synthesis.frontends.torch.ranks.tables import Tables, pieces
from shardproof.verifier.kernel.program.program import Input
from shardproof.verifier.kernel.program.types import Mesh, TensorType

IN_ORDER = "its rows in {kind} order, as stated"


def in_order_of_ranks(
    captured: RanksCaptured, stated: Statements
) -> Iterator[tuple[RanksCaptured, Statements]]:
    """The same of a one-device program whose rows lie as the ranks have them, each rank with a
    chunk; gradients of inputs lie as the inputs do. Scores of rows with rows lie so along both, or
    along the first. At last, tables such as masks are what the ranks have, whatever that is."""
    mesh = captured.ranks[0].program.mesh
    one = captured.one.program
    shapes = {i.path: i.type.shape for i in one.inputs if i.role == "input"}
    results = {o.path: one.types[o.value].shape for o in one.outputs if o.role != "grad"}
    orders = _orders(stated.inputs, shapes, mesh), _orders(stated.outputs, results, mesh)
    if not any(orders):
        yield captured, stated
        return
    inputs, outputs = (
        {n: Chunks(o.dim, o.chunks(of[n][o.dim], mesh[o.mesh_dim])) for n, o in some.items()}
        for some, of in zip(orders, (shapes, results), strict=True)
    )
    if len({chunks.order for chunks in (*inputs.values(), *outputs.values())}) > 1:
        raise InputError(
            "rows of inputs and outputs are in several orders",
            where="--input-layout, --output-layout",
            expected="one order, of dims of one extent, over one mesh dim",
        )
    if captured.one.draws:
        raise InputError(
            "dropout draws for rows of which an order is stated",
            where="--input-layout, --output-layout",
            hint="set dropout to 0",
        )
    outputs |= {GRAD_OF_INPUT + name: chunks for name, chunks in inputs.items()}
    plain = replace(stated, inputs=_plain(stated.inputs), outputs=_plain(stated.outputs))
    along = next(iter((*orders[0].values(), *orders[1].values()))).mesh_dim
    for most, own in ((2, False), (1, False), (2, True)):
        program, consts = permuted(one, inputs, outputs, captured.one.consts, most)
        if own:
            alone = _alone(captured, consts, along)
            types = {n: TensorType(t.shape, kind) for n, (t, kind) in alone.items()}
            more = (Input(n, kind, "const", n) for n, kind in types.items())
            program = replace(
                program,
                inputs=(*program.inputs, *more),
                types={**program.types, **types},
            )
            consts = {n: t for n, (t, _) in alone.items()} | consts
        side = replace(captured.one, program=program, consts=consts)
        ranks = (_with_tables(rank, consts, number) for number, rank in captured.numbered)
        yield replace(captured, one=side, ranks=tuple(ranks)), plain


def _alone(captured: RanksCaptured, consts: Tables, along: str) -> dict[str, tuple[Any, str]]:
    """Tables that ranks have and one device has not, those of all ranks along a mesh dim as one;
    each with its dtype."""
    mesh = captured.ranks[0].program.mesh
    held: dict[int, list[tuple[Any, str, bool]]] = {}
    for number, rank in captured.numbered:
        given = _with_tables(rank, consts, number).compared.inputs
        held[mesh.coords()[number][along]] = [
            (rank.consts[own.name], own.type.dtype, item.name in consts)
            for own, item in zip(rank.compared.inputs, given, strict=True)
            if own.role == "const" and own.name in rank.consts
        ]
    rows = [held[at] for at in sorted(held)]
    if len(rows) < mesh[along] or len(set(map(len, rows))) > 1:
        return {}
    found: dict[str, tuple[Any, str]] = {}
    for pieces_of in zip(*rows, strict=True):
        tables = [table for table, *_ in pieces_of]
        whole = all(known for *_, known in pieces_of)
        if not whole and len({t.shape for t in tables}) == 1 and tables[0].ndim:
            table = np.concatenate(tables)
            found[content_name(table)] = table, pieces_of[0][1]
    return found


def _with_tables(rank: Rank, consts: Tables, number: int) -> Rank:
    """A rank whose tables are pieces of those in the order of the ranks."""
    mesh = rank.program.mesh
    program, placed = pieces(rank.program, rank.consts, consts, mesh, number, split_alone=True)
    compared, _ = pieces(rank.compared, rank.consts, consts, mesh, number, split_alone=True)
    named = {n: consts[n] for n in placed}
    return replace(
        rank,
        program=program,
        compared=compared,
        tables={**rank.tables, **{name: first for name, (first, *_) in placed.items()}},
        consts={**rank.consts, **named},
    )


def told(placed: Sequence[Placed], stated: Statements, mesh: Mesh) -> tuple[Placed, ...]:
    """Lines of the contract, of which some say in which order rows are."""
    lines = {"input": stated.inputs, "output": stated.outputs}
    return tuple(
        replace(p, how=IN_ORDER.format(kind=order.kind))
        if (order := order_of(lines.get(p.kind, ()), p.name, len(p.layout.dims), mesh))
        else p
        for p in placed
    )


def _orders(
    lines: Sequence[LayoutLine], shapes: Mapping[str, tuple[int, ...]], mesh: Mesh
) -> dict[str, RowOrder]:
    found = {name: order_of(lines, name, len(shape), mesh) for name, shape in shapes.items()}
    return {name: order for name, order in found.items() if order is not None}


def _plain(lines: Sequence[LayoutLine]) -> tuple[LayoutLine, ...]:
    return tuple(
        replace(line, text=re.sub(r"(zigzag|striped)\(", "S(", line.text)) for line in lines
    )
