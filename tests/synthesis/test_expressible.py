"""Collectives of the forward pass stand where a module begins or ends, or no plan is written."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardproof.synthesis.lower import Lowered
from shardproof.synthesis.planner.expressible import Passed, obstacle
from shardproof.synthesis.planner.roles import UNREAD, Module
from shardproof.synthesis.planner.scoring import Asked, Candidate, Refusal, prepare
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from tests.synthesis import decoder

MESH = Mesh.of(tp=2)
NORM = Module("norm", "LayerNorm", "other")


def program(op: str, first: str, second: str, then: str) -> Program:
    """exp in `first`, a collective in `second`, exp in `then`."""
    b = Builder("program", MESH)
    with b.at(decoder.place(first, 1)):
        x = b.add("exp", b.input("x", decoder.f64(4, 4)))
    dims = {} if op == "all_reduce" else {"dim": 0}
    how = {} if op in ("all_gather", "shard_slice") else {"reduce": "sum"}
    with b.at(decoder.place(second, 2)):
        x = b.add(op, x, mesh_dim="tp", **dims, **how)
    with b.at(decoder.place(then, 3)):
        b.output(b.add("exp", x), "output", "out")
    return b.build()


def passed(made: Program) -> Passed:
    return Passed(Lowered(made, Contract({}, {}), ()))


def why(made: Program) -> str | None:
    found = obstacle(
        passed(made), [NORM], {"norm": "LayerNorm", "act": "GELU", "": "Model"}, "tp", 2
    )
    return None if found is None else found.text


@pytest.mark.parametrize(("first", "then"), [("a", "norm"), ("norm", "b")])
def test_a_gather_where_a_norm_begins_or_ends_is_written(first: str, then: str) -> None:
    assert why(program("all_gather", first, "norm", then)) is None


def test_a_sum_in_the_middle_of_a_norm_is_refused() -> None:
    found = why(program("all_reduce", "norm", "norm", "norm"))
    assert found == "needs all_reduce over tp in the middle of toy.py:2  norm"


def test_a_gather_between_modules_is_refused() -> None:
    found = why(program("all_gather", "a.b", "a", "norm"))
    assert found is not None
    assert found.startswith("needs all_gather over tp inside toy.py:2")


def test_a_gather_of_what_a_module_without_parameters_makes_is_refused() -> None:
    found = why(program("all_gather", "act", "act", "norm"))
    assert found == "needs all_gather over tp inside toy.py:2  act"
    assert why(program("all_gather", "norm", "act", "norm")) is None


@pytest.mark.parametrize(("path", "written"), [("const.0123456789ab", True), ("mask", False)])
def test_a_piece_of_a_table_is_written_where_capture_worked_it_out(
    path: str, written: bool
) -> None:
    b = Builder("program", MESH)
    x, table = b.input("x", decoder.f64(2, 4)), b.input(path, decoder.f64(4, 4), "const", path)
    with b.at(decoder.place("a", 1)):
        piece = b.add("shard_slice", table, dim=0, mesh_dim="tp")
        b.output(b.add("add", x, piece), "output", "out")
    assert (why(b.build()) is None) == written


@pytest.mark.parametrize(("columns", "written"), [(1, True), (4, False)])
def test_a_piece_of_what_is_broadcast_is_written_entry_by_entry(
    columns: int, written: bool
) -> None:
    """Which entries an index sends to each place: alike in all columns, or not."""
    b = Builder("program", MESH)
    x, ids = b.input("x", decoder.f64(3, 2)), b.input("ids", TensorType((3, columns), "i64"))
    with b.at(decoder.place("a", 1)):
        wide = b.add("expand", ids, shape=(3, 4))
        here = b.add("eq", wide, b.add("iota", shape=(3, 1), dim=0, offset=0, dtype="i64"))
        piece = b.add("shard_slice", here, dim=1, mesh_dim="tp")
        nothing = b.add("full", shape=(), value=Fraction(0), dtype="f64")
        b.output(b.add("where", piece, x, nothing), "output", "out")
    assert (why(b.build()) is None) == written


def test_a_sum_in_a_product_with_code_of_its_own_is_written_and_a_gather_is_not() -> None:
    own, kinds = (
        Module("own", "Own", "linear", order=UNREAD, own=True),
        {"own": "Own", "own.act": "Act"},
    )
    for op, written in (("all_reduce", True), ("all_gather", False)):
        made = program(op, "own.act", "own.act", "own.act")
        assert (obstacle(passed(made), [own], kinds, "tp", 2) is None) == written


def test_collectives_of_data_parallelism_are_no_obstacle() -> None:
    made = program("all_reduce", "norm", "norm", "norm")
    assert obstacle(passed(made), [NORM], {"norm": "LayerNorm"}, "dp", 2) is None


def test_what_has_no_style_moves_nothing() -> None:
    """A whole linear after a split one needs a gather that nobody writes; a whole pair does not."""
    state = prepare(Asked(decoder.decoder(layers=1), MESH, decoder.CLUSTER))
    start = TACTICS["column_row"](state.modules, 2)
    alone = start.with_style("layers.*.mlp.down", "replicate")
    refused = state.score(alone, "down whole")
    assert isinstance(refused, Refusal)
    assert "layers.*.mlp.down has no style, and needs all_gather over tp" in refused.reason
    pair = alone.with_style("layers.*.mlp.up", "replicate")
    assert isinstance(state.score(pair, "mlp whole"), Candidate)


def test_what_has_no_style_splits_nothing() -> None:
    """On a split stream a whole linear would need its gradients summed."""
    state = prepare(Asked(decoder.decoder(layers=1), MESH, decoder.CLUSTER))
    point = TACTICS["sequence_parallel"](state.modules, 2)
    assert isinstance(state.score(point, "all"), Candidate)
    for path in ("layers.*.mlp.up", "layers.*.mlp.down"):
        point = point.with_style(path, "replicate")
    refused = state.score(point, "mlp whole")
    assert isinstance(refused, Refusal)
    assert "has no style, and works on a split activation" in refused.reason
