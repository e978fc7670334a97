"""What ranks are loaded with, against what their layouts say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from shardproof.agent.check.contract import Placed
from shardproof.agent.check.loads import Looked, decided, look
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.ranks.result import Loaded, Loads, RanksCaptured
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Trace, Unknown
from tests.check.conftest import Case
from tests.commands import Command

TP = Mesh.of(tp=2)
UP = np.arange(1.0, 33.0).reshape(8, 4)
GATE = np.arange(33.0, 65.0).reshape(8, 4)
ROWS = from_placements((8, 4), [("tp", 2, "S(0)")])
COLUMNS = from_placements((8, 4), [("tp", 2, "S(1)")])


def looked(
    ranks: Sequence[Mapping[str, Any]],
    layout: Layout = ROWS,
    missing: tuple[str, ...] = (),
    ties: Mapping[str, str] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Looked:
    """Of a model with `up` and `gate`, both laid out alike, loaded into ranks that hold these."""
    one = Loaded({"up": UP, "gate": GATE}, {}, missing)
    side = SimpleNamespace(renamed=renamed or {})
    model = SimpleNamespace(ties=ties or {}, params={"up": None, "gate": None})
    captured = cast(RanksCaptured, SimpleNamespace(one=model, ranks=(side, side)))
    placed = [Placed("parameter", n, layout, "from its shape") for n in ("up", "gate")]
    loads = Loads(one, tuple(Loaded(held, {}) for held in ranks))
    return look(loads, captured, placed, TP, "made-up")


def test_the_pieces_that_the_layout_says() -> None:
    found = looked([{"up": UP[:4], "gate": GATE[:4]}, {"up": UP[4:], "gate": GATE[4:]}])
    assert found.wrong == ()
    assert "elements numbered" in found.told[0]


def test_columns_and_other_names() -> None:
    ranks = [{"w1": UP[:, :2], "gate": GATE[:, :2]}, {"w1": UP[:, 2:], "gate": GATE[:, 2:]}]
    assert looked(ranks, COLUMNS, renamed={"w1": "up"}).wrong == ()


def test_rows_of_another_weight_are_named() -> None:
    found = looked([{"up": UP[:4], "gate": GATE[:4]}, {"up": GATE[:4], "gate": GATE[4:]}])
    said = "holds gate[0:4, :], wrong from [0, 0] on, 16 of 16; expected up[4:8, :]: S(0)@tp"
    assert found.wrong == (f"rank tp=1: up {said} (from its shape)",)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (UP[4:][::-1], "up[4:8, :], in another order, wrong from [0, 0] on, 16 of 16"),
        (UP[1:8:2], "elements of up that are not a block, the first up[1, 0]"),
        (UP[4:7], "up[4:7, :], of shape [3, 4]"),
        (np.full((4, 4), np.nan), "numbers that no parameter of the model has"),
        (np.concatenate([UP[4:6], GATE[:2]]), "elements of up and of other parameters"),
    ],
)
def test_other_elements_are_described(held: Any, said: str) -> None:
    found = looked([{"up": UP[:4], "gate": GATE[:4]}, {"up": held, "gate": GATE[4:]}])
    assert said in found.wrong[0]


def test_what_the_checkpoint_lacks_is_told() -> None:
    ranks = [{"up": UP[:4], "gate": GATE * 0}] * 2
    found = looked(ranks, missing=("gate",))
    assert len(found.wrong) == 1
    assert "rank tp=1: up" in found.wrong[0]
    assert any("not looked at: gate" in line for line in found.told)
    with pytest.raises(InputError, match="no parameter of the model is loaded"):
        looked(ranks, missing=("gate", "up"))


def test_a_wrong_load_refutes_what_is_not_refuted_yet() -> None:
    wrong = Looked(tuple(f"piece {n}" for n in range(10)))
    found = decided(Unknown("why"), wrong, TP)
    assert isinstance(found, Counterexample)
    assert isinstance(found.witness, Trace)
    assert found.witness.steps[-1] == "and 2 more"
    refuted = Counterexample("tp=2", Trace("values", "differ"))
    assert decided(refuted, wrong, TP) is refuted
    assert decided(Unknown("why"), Looked(), TP) == Unknown("why")


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(command: Command) -> Run:
    def check(case: Case, *more: str) -> tuple[int, str]:
        target, against = (f"{case.folder}/{t}" for t in (case.target, case.against))
        options = ["--mesh", "tp=2", "--mode", "train", "--repair-seconds", "0"]
        done = command(
            "check", target, "--against", against, *options, "--load", "made-up", "--no-run", *more
        )
        return done.code, " ".join((done.out + done.err).split())

    return check


@pytest.mark.torch
def test_a_function_of_the_users_loads(case: Callable[..., Case], run: Run) -> None:
    code, said = run(case(), "--load-with", "load")
    assert code == 0
    assert "loaded with a made-up checkpoint" in said


@pytest.mark.torch
@pytest.mark.parametrize(
    ("old", "new", "piece"),
    [
        ("SPLIT[name])[rank]", "SPLIT[name])[rank - 1]", "holds up.weight[8:16, :]"),
        ('"down.weight": 1}', '"down.weight": 1, "norm.bias": 0}', "size"),
        ("p.data.copy_(whole.chunk", "p.data.copy_(-whole.chunk", "no parameter of the model"),
    ],
)
def test_a_wrong_piece_is_found(
    case: Callable[..., Case], run: Run, old: str, new: str, piece: str
) -> None:
    code, said = run(case().edit(old, new), "--load-with", "load")
    assert code == (2 if piece == "size" else 1), said
    assert piece in said


@pytest.mark.torch
@pytest.mark.parametrize(("load", "code"), [("load", 0), ("load_turned", 1)])
def test_a_buffer_that_has_a_layout_is_looked_at(run: Run, load: str, code: int) -> None:
    folder = Path(__file__).parents[1] / "attacks" / "ranks" / "buffers"
    filled = Case(folder, TP, "filled_right.py:P", "filled_right.py:M")
    found, said = run(filled, "--load-with", load, "--layout", "scale=S(0)@tp")
    assert found == code, said
    assert ("scale holds scale[8:16], in another order" in said) == bool(code)


@pytest.mark.torch
def test_weights_from_other_ranks_are_refused(case: Callable[..., Case], run: Run) -> None:
    wrong = case().edit(
        "        whole = state[name]",
        "        dist.broadcast(state[name], 0)\n        whole = state[name]",
    )
    code, said = run(wrong, "--load-with", "load")
    assert code == 2
    assert "broadcast of weights while the module is loaded" in said


@pytest.mark.torch
def test_what_load_state_dict_does_not_take(case: Callable[..., Case], run: Run) -> None:
    code, said = run(case())
    assert code == 2
    assert "--load-with FUNCTION" in said
