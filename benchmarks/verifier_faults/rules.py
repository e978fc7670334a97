# pyright: basic
"""Faults of the checker's own rules, each with a step that it lets through and Z3 refutes."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

from benchmarks.verifier_faults.edits import Edit, made
from shardproof.verifier.checker import collectives, conclusion, rules
from shardproof.verifier.checker.claims import Claim, Row
from shardproof.verifier.checker.step import Made, Step
from shardproof.verifier.kernel.instance import JOINED, Instance, Piece
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh
from shardproof.verifier.smt.answers import normal_form
from shardproof.verifier.terms import Ref, Terms

MESH = Mesh.of(dp=4, tp=8)


def piece(text: str) -> Piece:
    """For example `8@tp 4, 16; sum@dp; tp=0`: dims, a pending fold, ranks."""
    dims, *rest = text.split(";")
    layout = Layout(
        tuple(normal(_atom(word) for word in dim.split()) for dim in dims.split(",") if dim.strip())
    )
    where: list[tuple[str, tuple[int, ...]]] = []
    for item in rest:
        fold = re.fullmatch(r"\s*(\w+)@(\w+)", item)
        if fold:
            layout = layout.with_partial((*layout.partial, (fold[2], fold[1])))
        else:
            name, _, at = item.strip().partition("=")
            where.append((name, tuple(map(int, at.split("|")))))
    return Piece(layout, tuple(where))


def _atom(word: str) -> Atom:
    size, _, name = word.partition("@")
    return Atom(int(size), name or None)


def instance(op: str, given: list[str], made: str, rule: str = "", **attrs: Attr) -> Instance:
    items = attrs if op == JOINED else lookup(op).with_defaults(attrs)
    pieces = tuple(map(piece, given))
    kinds = {"index": 1} if op != JOINED and lookup(op).kind == "index" else {}
    pieces = tuple(
        replace(p, dtype="i64") if i in kinds.values() else p for i, p in enumerate(pieces)
    )
    return normal_form(
        Instance(rule or op, op, tuple(sorted(items.items())), pieces, piece(made), MESH)
    )


Rule = Callable[[Step], Made]


def bare(**attrs: Any) -> Rule:
    """A rule that asks for nothing."""
    return lambda step: step.term(**attrs)


def shaped(step: Step) -> Made:
    return step.term(shape=step.layout.global_shape)


def windows(step: Step, dims: Any) -> list[tuple[str, str]]:
    return [(a.mesh_dim, "sum") for a in dims if a.mesh_dim]


def counted_once(step: Step) -> tuple[tuple[tuple[str, str], ...], Fraction]:
    names = collectives._names(step)
    return tuple(p for p in step.first.partial if p[0] not in names), Fraction(1)


def joined_as_they_come(row: Row, parts: Sequence[Claim], terms: Terms, mesh: Mesh) -> Ref:
    return terms.apply("concat", [p.ref for p in parts], {"dim": 0}, ["f32"] * len(parts))


@dataclass(frozen=True)
class Fault:
    """A change to a rule, and a step that it lets through."""

    name: str
    step: Instance
    at: Any
    attribute: str = ""
    value: object = None
    op: str = ""
    """The entry of a table that is changed."""

    @contextmanager
    def made(self) -> Generator[None]:
        """The rules with the fault."""
        if isinstance(self.at, Edit):
            changed = made(self.at)
        elif isinstance(self.at, dict):
            changed = patch.dict(self.at, {self.op: self.value})
        else:
            changed = patch.object(self.at, self.attribute, self.value)
        with changed:
            yield

    @property
    def place(self) -> str:
        """The module it lies in."""
        if isinstance(self.at, Edit):
            return self.at.room.removeprefix("shardproof.verifier.")
        return (
            "checker.rules"
            if isinstance(self.at, dict)
            else self.at.__name__.removeprefix("shardproof.verifier.")
        )


FAULTS = [
    Fault(
        "a pending sum passes a function that is not linear",
        instance("relu", ["16, 8; sum@tp"], "16, 8; sum@tp"),
        rules.LINEAR,
        "",
        (frozenset({0}),),
        "relu",
    ),
    Fault(
        "a product of two pending sums is one",
        instance("mul", ["16; sum@tp", "16; sum@tp"], "16; sum@tp"),
        rules.LINEAR,
        "",
        (frozenset({0, 1}),),
        "mul",
    ),
    Fault(
        "a pending maximum passes a function that falls",
        instance("neg", ["16; max@tp"], "16; max@tp"),
        rules,
        "MONOTONE",
        {("neg", "max")},
    ),
    Fault(
        "a permutation is taken for its inverse",
        instance("permute", ["8@tp 2, 16, 32"], "32, 8@tp 2, 16", dims=(1, 2, 0)),
        rules._RULES,
        "",
        bare(dims=(2, 0, 1)),
        "permute",
    ),
    Fault(
        "a slice starts at 0 whatever is said",
        instance("slice", ["8@tp 4, 16"], "8@tp 4, 8", dim=1, start=8, stop=16, step=1),
        rules._RULES,
        "",
        bare(start=0, stop=8),
        "slice",
    ),
    Fault(
        "a slice of a rank's part is one of the whole",
        instance("slice", ["8@tp 4, 16"], "8@tp 2, 16", dim=0, start=0, stop=2, step=1),
        rules._RULES,
        "",
        lambda s: s.term(stop=2 * s.mesh[s.mesh.names[0]]),
        "slice",
    ),
    Fault(
        "pieces are scattered to ranks in another order",
        instance(
            "reduce_scatter",
            ["64; sum@dp; sum@tp"],
            "8@tp 4@dp 2",
            dim=0,
            mesh_dim=("dp", "tp"),
            reduce="sum",
        ),
        collectives,
        "_names",
        lambda step: tuple(reversed(step.attrs["mesh_dim"])),
    ),
    Fault(
        "pieces are gathered in another order",
        instance("all_gather", ["8@tp 4@dp 2"], "64", dim=0, mesh_dim=("dp", "tp")),
        collectives,
        "_names",
        lambda step: tuple(reversed(step.attrs["mesh_dim"])),
    ),
    Fault(
        "a sum of copies is counted once",
        instance("all_reduce", ["16"], "16", mesh_dim="tp", reduce="sum"),
        collectives,
        "_reduced",
        counted_once,
    ),
    Fault(
        "a mean is a sum",
        instance("all_reduce", ["16; sum@tp"], "16", mesh_dim="tp", reduce="avg"),
        collectives,
        "_reduced",
        counted_once,
    ),
    Fault(
        "a lookup in a window that is not the rank's",
        instance("take", ["8@tp 4, 16", "8"], "8, 16; sum@tp", dim=0, offset=0),
        rules,
        "_window",
        windows,
    ),
    Fault(
        "a window of another size",
        instance(
            "take", ["8@tp 4, 16", "8"], "8, 16; sum@tp", dim=0, offset=Affine.of(0, {"tp": 2})
        ),
        rules,
        "_window",
        windows,
    ),
    Fault(
        "a ramp starts at 0 on every rank",
        instance("iota", [], "8@tp 4", shape=(4,), dim=0, offset=0, dtype="i64"),
        rules._RULES,
        "",
        lambda s: s.term(shape=s.layout.global_shape, offset=0),
        "iota",
    ),
    Fault(
        "a sum of a split dim waits for nothing",
        instance("sum", ["8@tp 4, 16"], "16", dims=(0,), keepdim=False),
        rules._KINDS,
        "",
        bare(),
        "reduce",
    ),
    Fault(
        "a maximum of a split dim leaves a sum",
        instance("amax", ["8@tp 4, 16"], "16; sum@tp", dims=(0,), keepdim=False),
        rules.FOLDS,
        "",
        "sum",
        "amax",
    ),
    Fault(
        "a running sum along a split dim",
        instance("cumsum", ["8@tp 4, 16"], "8@tp 4, 16", dim=0, exclusive=False),
        rules._RULES,
        "",
        bare(),
        "cumsum",
    ),
    Fault(
        "a split dim is turned round on each rank",
        instance("flip", ["8@tp 4, 16"], "8@tp 4, 16", dim=0),
        rules._RULES,
        "",
        bare(),
        "flip",
    ),
    Fault(
        "joined pieces are the leading ones of each rank",
        instance("concat", ["8@tp 4", "8@tp 4"], "8@tp 8", dim=0),
        rules._RULES,
        "",
        bare(),
        "concat",
    ),
    Fault(
        "atoms of a reshape change places",
        instance("reshape", ["4, 8@tp 2"], "8@tp 8", shape=(8,)),
        rules._RULES,
        "",
        shaped,
        "reshape",
    ),
    Fault(
        "two ranks' parts are joined in the order of the claims",
        instance(
            JOINED,
            ["4; dp=1", "4; dp=0", "4; dp=2", "4; dp=3"],
            "4@dp 4",
            rule=f"{JOINED}:concat:dp:0",
        ),
        conclusion,
        "join",
        joined_as_they_come,
    ),
    Fault(
        "rows are in pieces",
        instance("topk_mask", ["8@tp 4, 16"], "8@tp 4, 16", dim=0, k=1),
        rules._KINDS,
        "",
        bare(),
        "rows",
    ),
]


def slip(name: str, place: str, old: str, new: str, step: Instance) -> None:
    FAULTS.append(Fault(name, step, Edit(f"shardproof.verifier.checker.{place}", old, new)))


SHIFTED = Affine.of(0, {"tp": 4})
slip(
    "the inner of two splits is gathered as the outer",
    "collectives:_opened",
    "all(a.mesh_dim is not None for a in dim[:at])",
    "True",
    instance("all_gather", ["4 8@tp 2"], "64", dim=0, mesh_dim="tp"),
)
slip(
    "a gather changes another dim",
    "collectives:all_gather",
    "others(step, dim)",
    "pass",
    instance("all_gather", ["8@tp 4, 4@dp, 4"], "32, 4, 4@dp", dim=0, mesh_dim="tp"),
)
slip(
    "a rank's slice is any piece",
    "collectives:shard_slice",
    '_split(step, step.at("dim"))',
    "pass",
    instance("shard_slice", ["32"], "4 8@tp", dim=0, mesh_dim="tp"),
)
slip(
    "a scatter ends sums over other ranks too",
    "collectives:reduce_scatter",
    "step.layout.partial == partial",
    "True",
    instance(
        "reduce_scatter", ["64; sum@dp; sum@tp"], "8@tp 8", dim=0, mesh_dim="tp", reduce="sum"
    ),
)
slip(
    "a value on one rank is one on all",
    "collectives:on_coord",
    'pending(step, step.first.partial, [(name, "sum")] if step.mesh[name] > 1 else [])',
    "pass",
    instance("on_coord", ["16"], "16", mesh_dim="tp", index=0),
)
slip(
    "a cut inside a block is one between blocks",
    "views:cut",
    "low % local == 0 and high % local == 0",
    "True",
    instance("slice", ["2 8@tp 4"], "8@tp 4", dim=0, start=2, stop=6, step=1),
)
slip(
    "a cut of a split dim is counted on a rank",
    "views:cut",
    "(low * whole, high * whole)",
    "(low * local, high * local)",
    instance("slice", ["6 8@tp 4"], "2 8@tp 4", dim=0, start=4, stop=12, step=1),
)
slip(
    "a broadcast may split a dim otherwise",
    "views:expand",
    "dim in ((), new)",
    "True",
    instance("expand", ["8@tp 4"], "2, 4 8@tp", shape=(2, 4)),
)
slip(
    "what is whole joins what is pending",
    "views:concat",
    "claim.layout.partial == step.layout.partial",
    "True",
    instance("concat", ["16; sum@tp", "16"], "32; sum@tp", dim=0),
)
slip(
    "a reshape ends a sum",
    "views:reshape",
    "same_partial(step)",
    "pass",
    instance("reshape", ["4, 8@tp 2; sum@dp"], "4 8@tp 2", shape=(8,)),
)
slip(
    "a permutation ends a sum",
    "views:permute",
    "same_partial(step)",
    "pass",
    instance("permute", ["4, 8@tp 2; sum@dp"], "8@tp 2, 4", dims=(1, 0)),
)
slip(
    "operands may be split otherwise than the result",
    "rules:_map",
    "dim in ((), theirs)",
    "True",
    instance("add", ["8@tp 4", "4 8@tp"], "8@tp 4"),
)
slip(
    "factors may be split in two ways",
    "rules:_product",
    "dims.setdefault(factor, dim) == dim",
    "dims.setdefault(factor, dim) is not None",
    instance("mm", ["16, 8@tp 4", "4 8@tp, 16"], "16, 16; sum@tp"),
)
slip(
    "a maximum passes a product",
    "rules:_product",
    "sums(claim.layout)",
    "pass",
    instance("mm", ["16, 8; max@tp", "8, 16"], "16, 16; max@tp"),
)
slip(
    "a product is split as it likes",
    "rules:_product",
    "step.layout.dims == tuple(dims[f] for f in result)",
    "True",
    instance("mm", ["8@tp 4, 4", "4, 8"], "4 8@tp, 8"),
)
slip(
    "a maximum passes a sum",
    "rules:_reduce",
    "all(f == fold for _, f in step.first.partial)",
    "True",
    instance("sum", ["8, 16; max@tp"], "16; max@tp", dims=(0,), keepdim=False),
)
slip(
    "a lookup is split as it likes",
    "rules:_take",
    "step.layout.dims == (*x.dims[:dim], *index.dims, *x.dims[dim + 1 :])",
    "True",
    instance("take", ["16, 4@dp 2", "8"], "8, 2 4@dp", dim=0, offset=0),
)
slip(
    "a lookup along lines is split as it likes",
    "rules:_take_along",
    "step.layout.dims == index.dims",
    "True",
    instance("take_along", ["16, 8", "8@tp 2, 8"], "2 8@tp, 8", dim=0, offset=0),
)
slip(
    "rows are added at indices of other rows",
    "rules:_index_add",
    "values.dims[:n] == index.dims",
    "True",
    instance("index_add", ["8@tp 2, 16", "2 8@tp"], "4, 16; sum@tp", size=4, offset=0),
)
slip(
    "rows of all ranks are added by each",
    "rules:_index_add",
    "pending(step, values.partial, added)",
    "pass",
    instance("index_add", ["8@tp 2, 16", "8@tp 2"], "4, 16", size=4, offset=0),
)
slip(
    "a line that is split is put by each rank",
    "rules:_put_along",
    "not bound(values.dims[dim])",
    "True",
    instance("put_along", ["8@tp 2, 16", "8@tp 2, 16"], "4, 16", dim=0, size=4, offset=0),
)
slip(
    "a constant is a share of itself",
    "rules:_full",
    "not step.layout.partial",
    "True",
    instance("full", [], "16; sum@tp", shape=(16,), value=Fraction(1), dtype="f32"),
)
slip(
    "a ramp in strides is one in blocks",
    "rules:_iota",
    "not seen",
    "True",
    instance("iota", [], "4 8@tp", shape=(4,), dim=0, offset=Affine.of(0, {"tp": 1}), dtype="i64"),
)
slip(
    "rows in strides are a window",
    "rules:_window",
    "len(names) == 1 and rows[0].mesh_dim == names[0]",
    "len(names) == 1",
    instance("take", ["2 8@tp 2, 16", "8"], "8, 16; sum@tp", dim=0, offset=SHIFTED),
)
slip(
    "a maximum passes a running sum",
    "rows:cumsum",
    "sums(step.first)",
    "pass",
    instance("cumsum", ["8, 16; max@tp"], "8, 16; max@tp", dim=0, exclusive=False),
)
slip(
    "the largest of a pending sum are pending",
    "rows:whole",
    "not step.first.partial and not step.layout.partial",
    "True",
    instance("topk_mask", ["8, 16; sum@tp"], "8, 16; sum@tp", dim=0, k=1),
)
slip(
    "the largest of a rank are those of all",
    "rows:topk_index",
    "not bound(step.first.dims[dim])",
    "True",
    instance("topk_index", ["8@tp 4, 16"], "1, 16", dim=0, k=1),
)
SEED = (replace(piece(""), dtype="i64"),)
slip(
    "masks of ranks are copies",
    "rows:dropout_mask",
    "set(moves) == set(names)",
    "True",
    replace(
        instance(
            "dropout_mask",
            [""],
            "4",
            shape=(4,),
            p=Fraction(1, 2),
            stream=0,
            strides=(1,),
            offset=SHIFTED,
        ),
        given=SEED,
    ),
)
slip(
    "a mask moves on by any number",
    "rows:_stride",
    "moved == value",
    "True",
    replace(
        instance(
            "dropout_mask",
            [""],
            "8@tp 4",
            shape=(4,),
            p=Fraction(1, 2),
            stream=0,
            strides=(1,),
            offset=Affine.of(0, {"tp": 5}),
        ),
        given=SEED,
    ),
)
slip(
    "a value is sent from another rank",
    "moves:move",
    "source in here",
    "True",
    instance("send", ["16; dp=0"], "16; dp=2", mesh_dim="dp", src=1, dst=2),
)
slip(
    "a value arrives anywhere",
    "moves:move",
    'there == (int(attrs["dst"]),) or size == 1, "it arrives elsewhere"',
    'True, ""',
    instance("send", ["16; dp=1"], "16; dp=3", mesh_dim="dp", src=1, dst=2),
)
slip(
    "another rank is the root",
    "moves:move",
    'int(attrs["index"]) in here',
    "True",
    instance("broadcast", ["16; dp=0"], "16", mesh_dim="dp", index=1),
)
slip(
    "a ring turns the other way",
    "moves:_around",
    "(i - shift)",
    "(i + shift)",
    instance("ring_shift", ["8@tp 4"], "8@tp 4", mesh_dim="tp", shift=1),
)
slip(
    "every rank has the first piece",
    "moves:_piece",
    '"start": chosen[0] * extent, "stop": (chosen[0] + 1) * extent',
    '"start": 0, "stop": extent',
    instance("only", ["8@tp 4"], "4; tp=1", rule="only:piece:tp"),
)
slip(
    "copies are reduced to one",
    "moves:_reduced",
    'size if fold == "sum" and name not in given.layout.pending else 1',
    "1",
    instance("reduce_to", ["16"], "16; tp=0", mesh_dim="tp", index=0, reduce="sum"),
)
slip(
    "n copies are shares of the value",
    "parts:_share",
    "given.ref.coef * mesh[name]",
    "given.ref.coef",
    instance(JOINED, ["16"], "16; sum@tp", rule=f"{JOINED}:share:tp"),
)
slip(
    "all pieces are the first",
    "parts:_piece",
    '"start": at * extent, "stop": (at + 1) * extent',
    '"start": 0, "stop": extent',
    instance(JOINED, ["8@tp 4"], "4; tp=1", rule=f"{JOINED}:piece:tp"),
)
slip(
    "pieces add up to their maximum",
    "parts:_digits",
    'terms.reduce("sum"',
    'terms.reduce("amax"',
    instance(JOINED, ["8@tp 4"], "4; sum@tp", rule=f"{JOINED}:digits:tp"),
)
