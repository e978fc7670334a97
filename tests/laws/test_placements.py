"""Every claim of every placement rule, against the whole op: on numbers and by Z3."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shardproof.verifier.domains.field import Field
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.ops import Refused
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.types import Affine, Mesh
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.provers.placement import Operands, Placed, place
from tests.laws.laws import check, survey
from tests.laws.samples import Case, cases, forms

TP = Mesh.of(tp=2)
APART = ("composite", "control")
"""Kinds without claims of their own."""
COLLECTED = {name for name, op in REGISTRY.items() if op.kind not in APART}


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_claim_of_the_op_holds(name: str) -> None:
    tally, broken = survey(REGISTRY[name], limit=8)
    assert not broken, "\n".join(map(str, broken))
    assert bool(tally.claims) == (name in COLLECTED)


def test_an_op_without_samples_is_an_error() -> None:
    unknown = replace(REGISTRY["flip"], name="unheard_of")
    with pytest.raises(IRError, match="no samples of unheard_of"):
        list(forms(unknown, TP))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("gelu", lambda c: Placed((c.layouts[0],), c.attrs)),
        ("mm", lambda c: Placed((Layout((c.layouts[0].dims[0], c.layouts[1].dims[1])),), c.attrs)),
        ("flip", lambda c: Placed((c.layouts[0],), c.attrs)),
    ],
)
def test_a_rule_that_claims_too_much_is_caught(name: str, wrong: object) -> None:
    op = REGISTRY[name]
    rng = np.random.default_rng(0)
    caught = 0
    for case in cases(op, TP, rng, 60):
        try:
            place(op, case.operands)
        except Refused:
            placed: Placed = wrong(case)  # type: ignore[operator]
            shapes = [layout.local_shape for layout in case.layouts]
            if name == "mm" and shapes[0][1] != shapes[1][0]:
                continue
            caught += bool(check(case, placed, Floats(), rng))
    assert caught


def placed(name: str, *given: tuple[tuple[int, ...], str], **attrs: object) -> list[Placed]:
    layouts = tuple(from_placements(shape, [("tp", 2, p)]) for shape, p in given)
    op = REGISTRY[name]
    items = tuple(sorted(op.with_defaults(attrs).items()))
    return place(op, Operands(layouts, items, TP))


ACCEPTED = [
    ("mm", [((4, 8), "R"), ((8, 6), "S(1)")], {}, "Shard(1)"),
    ("mm", [((4, 8), "S(1)"), ((8, 6), "S(0)")], {}, "Partial(sum)"),
    ("mm", [((4, 8), "P"), ((8, 6), "R")], {}, "Partial(sum)"),
    ("bmm", [((4, 2, 3), "S(0)"), ((4, 3, 5), "S(0)")], {}, "Shard(0)"),
    ("add", [((4, 6), "S(1)"), ((6,), "S(0)")], {}, "Shard(1)"),
    ("add", [((4, 6), "P"), ((4, 6), "P")], {}, "Partial(sum)"),
    ("mul", [((4, 6), "P"), ((4, 6), "R")], {}, "Partial(sum)"),
    ("div", [((4, 6), "P"), ((4, 1), "R")], {}, "Partial(sum)"),
    ("gelu", [((4, 6), "S(0)")], {}, "Shard(0)"),
    ("sum", [((4, 6), "S(1)")], {"dims": (1,)}, "Partial(sum)"),
    ("amax", [((4, 6), "S(1)")], {"dims": (1,)}, "Partial(max)"),
    ("reshape", [((4, 8), "S(1)")], {"shape": (4, 2, 2)}, "Shard(1)"),
    ("permute", [((4, 8), "S(1)")], {"dims": (1, 0)}, "Shard(0)"),
    ("all_reduce", [((4, 8), "P")], {"mesh_dim": "tp"}, "Replicate"),
    ("all_gather", [((4, 8), "S(1)")], {"mesh_dim": "tp", "dim": 1}, "Replicate"),
    ("reduce_scatter", [((4, 8), "P")], {"mesh_dim": "tp", "dim": 0}, "Shard(0)"),
    ("shard_slice", [((4, 8), "R")], {"mesh_dim": "tp", "dim": 0}, "Shard(0)"),
    ("shard_pad", [((4, 8), "S(0)")], {"mesh_dim": "tp", "dim": 0}, "Partial(sum)"),
    (
        "all_to_all",
        [((4, 8), "S(1)")],
        {"mesh_dim": "tp", "split_dim": 0, "concat_dim": 1},
        "Shard(0)",
    ),
    ("on_coord", [((4, 8), "R")], {"mesh_dim": "tp", "index": 1}, "Partial(sum)"),
    (
        "take",
        [((8, 4), "S(0)"), ((3,), "R")],
        {"dim": 0, "offset": Affine.of(0, {"tp": 4})},
        "Partial(sum)",
    ),
    (
        "take_along",
        [((3, 8), "S(1)"), ((3, 1), "R")],
        {"dim": 1, "offset": Affine.of(0, {"tp": 4})},
        "Partial(sum)",
    ),
    ("index_add", [((6, 4), "S(0)"), ((6,), "S(0)")], {"size": 5}, "Partial(sum)"),
]


@pytest.mark.parametrize(("name", "given", "attrs", "want"), ACCEPTED)
def test_the_rules_of_the_textbook_are_accepted(
    name: str, given: list[tuple[tuple[int, ...], str]], attrs: dict[str, object], want: str
) -> None:
    claims = placed(name, *given, **attrs)
    assert want in [p.layouts[0].placement("tp") for p in claims]


REFUSED = [
    ("add", [((4, 6), "P"), ((4, 6), "R")], {}),
    ("mul", [((4, 6), "P"), ((4, 6), "P")], {}),
    ("gelu", [((4, 6), "P")], {}),
    ("mm", [((4, 8), "S(1)"), ((8, 6), "R")], {}),
    ("add_scalar", [((4, 6), "P")], {"value": Fraction(1)}),
    ("neg", [((4, 6), "P(max)")], {}),
    ("all_gather", [((4, 8), "S(1)")], {"mesh_dim": "tp", "dim": 0}),
    ("all_reduce", [((4, 8), "S(1)")], {"mesh_dim": "tp"}),
    ("all_reduce", [((4, 8), "P(max)")], {"mesh_dim": "tp"}),
    ("slice", [((4, 8), "S(1)")], {"dim": 1, "start": 1, "stop": 3}),
    ("flip", [((4, 8), "S(1)")], {"dim": 1}),
    ("take", [((8, 4), "S(0)"), ((3,), "R")], {"dim": 0}),
    ("take", [((8, 4), "S(0)"), ((3,), "R")], {"dim": 0, "offset": Affine.of(1, {"tp": 4})}),
    ("reshape", [((4, 6), "S(1)")], {"shape": (3, 4)}),
]


@pytest.mark.parametrize(("name", "given", "attrs"), REFUSED)
def test_what_is_not_true_is_refused(
    name: str, given: list[tuple[tuple[int, ...], str]], attrs: dict[str, object]
) -> None:
    with pytest.raises(Refused):
        placed(name, *given, **attrs)


def test_a_ramp_over_two_mesh_dims_with_one_step_is_refused() -> None:
    op, mesh = REGISTRY["iota"], Mesh.of(dp=2, tp=2)
    offset = Affine.of(0, {"dp": 4, "tp": 4})
    attrs = (("dim", 0), ("dtype", "i64"), ("offset", offset), ("shape", (4,)))
    with pytest.raises(Refused):
        place(op, Operands((), attrs, mesh))


def test_a_zero_does_not_hide_two_sums_over_different_mesh_dims() -> None:
    op, mesh = REGISTRY["concat"], Mesh.of(dp=2, tp=2)
    whole = Layout.replicate((4, 4))
    layouts = (whole, whole.with_partial([("tp", "sum")]), whole.with_partial([("dp", "sum")]))
    with pytest.raises(Refused):
        place(op, Operands(layouts, (("dim", 0),), mesh, frozenset({0})))


def test_blocks_that_are_split_alike_are_joined_however_many_there_are() -> None:
    op, mesh = REGISTRY["concat"], Mesh.of(tp=2)
    one, two = (Layout((normal((Atom(n), Atom(2, "tp"), Atom(3))),)) for n in (1, 2))
    (claim,) = place(op, Operands((one, two, one), (("dim", 0),), mesh))
    assert claim.layouts[0].dims == (normal((Atom(4), Atom(2, "tp"), Atom(3))),)
    case = Case(op, mesh, (one, two, one), ("f32",) * 3, (("dim", 0),))
    assert check(case, claim, Field(), np.random.default_rng(0)) is None
    other = Layout((normal((Atom(2, "tp"), Atom(6))),))
    with pytest.raises(Refused):
        place(op, Operands((one, other), (("dim", 0),), mesh))


def test_a_gather_over_two_mesh_dims_joins_in_their_order() -> None:
    op, mesh = REGISTRY["all_gather"], Mesh.of(dp=2, tp=2)
    layout = from_placements((8,), [("dp", 2, "S(0)"), ("tp", 2, "S(0)")])
    good = Operands((layout,), (("dim", 0), ("mesh_dim", ("dp", "tp"))), mesh)
    (claim,) = place(op, good)
    assert claim.layouts[0] == Layout.replicate((8,))
    case = Case(op, mesh, (layout,), ("f32",), good.attrs)
    assert check(case, claim, Field(), np.random.default_rng(0)) is None
    with pytest.raises(Refused):
        place(op, Operands((layout,), (("dim", 0), ("mesh_dim", ("tp", "dp"))), mesh))
