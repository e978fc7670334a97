"""PyTorch's own ways to make a module parallel: DTensor plans, fully_shard, DDP; and published
spellings of hand-written ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shardproof.agent.check.contract import placement
from shardproof.agent.check.judging import Checked
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.pairing import pair_names
from shardproof.verifier.kernel.program.types import Mesh

pytestmark = pytest.mark.torch
FILE = Path(__file__).with_name("dialects.py")
DP, TP, BOTH = Mesh.of(dp=2), Mesh.of(tp=2), Mesh.of(dp=2, tp=2)
ROWS = ["x=S(0)@dp"]


@pytest.fixture
def made(case: Callable[..., object], tmp_path: Path) -> Callable[..., object]:
    shutil.copy(FILE, tmp_path)

    def make(name: str, against: str, mesh: Mesh, **what: object) -> object:
        targets = {"target": f"dialects.py:{name}", "against": f"dialects.py:{against}"}
        return case(mesh, **targets, modes=("train",), **what)

    return make


def layouts(found: Checked, mesh: Mesh) -> dict[str, str]:
    return {p.name: placement(p.layout, mesh) for p in found.placed}


LATE = ("tensor_parallel", "dtensor_output", "kept_after_forward")
"""Of modules that others are like: not for every run."""
PROVED = [
    ("tensor_parallel", "MLP", TP, ()),
    ("dtensor_output", "MLP", TP, ()),
    ("sequence_parallel", "Normed", TP, ["x=S(0)@tp"]),
    ("sharded", "LossMLP", DP, ROWS),
    ("kept_after_forward", "LossMLP", DP, ROWS),
    ("sharded_and_split", "LossMLP", BOTH, ROWS),
    ("averaged", "LossMLP", DP, ROWS),
]


@pytest.mark.parametrize(
    ("name", "against", "mesh", "rows"),
    [pytest.param(*p, marks=pytest.mark.campaign if p[0] in LATE else []) for p in PROVED],
    ids=[p[0] for p in PROVED],
)
def test_right_modules_are_proved(
    made: Callable[..., object], name: str, against: str, mesh: Mesh, rows: Sequence[str]
) -> None:
    made(name, against, mesh, input_layouts=rows).proved()


def test_rows_whose_numbers_are_constants_are_looked_up_by_rank(
    made: Callable[..., object],
) -> None:
    made("places_by_rank", "Placed", TP).proved()
    made("later_places", "Placed", TP).refuted()


@pytest.mark.campaign
def test_a_norm_of_split_features_takes_its_statistics_over_all_ranks(
    made: Callable[..., object],
) -> None:
    made("inner_norm", "Inner", TP).proved()
    made("norm_of_pieces", "Inner", TP).refuted()
    made("norm_added_up", "Inner", TP).refuted()


@pytest.mark.campaign
def test_a_convolution_gathers_channels_and_adds_their_gradient_up(
    made: Callable[..., object],
) -> None:
    made("gathers_between", "Between", TP).proved()
    made("gathers_shares", "Between", TP).refuted()


@pytest.mark.parametrize("name", ["SetData", "InTwo"])
def test_published_spellings_are_proved(made: Callable[..., object], name: str) -> None:
    made(name, "MLP", TP, no_grad=["x"]).proved()


def test_a_plan_is_proved_in_every_mode_and_its_layouts_are_read_off_placements(
    made: Callable[..., object],
) -> None:
    case = made("split_output", "MLP", TP, input_layouts=["x=S(0)@tp"])
    case.modes = ("train", "eval")
    found = case.proved()
    assert found.captured.modes == ("eval", "inference", "train", "forward")
    assert layouts(found, TP) == {
        "up.weight": "S(0)@tp",
        "up.bias": "S(0)@tp",
        "down.weight": "S(1)@tp",
        "down.bias": "R",
        "x": "S(0)@tp",
        "output": "S(0)@tp",
    }
    assert {p.how for p in found.placed if p.kind == "parameter"} == {"from its placements"}


def test_fully_shard_is_proved_without_gradients_too(made: Callable[..., object]) -> None:
    case = made("sharded", "LossMLP", DP, input_layouts=ROWS)
    case.modes = ("eval",)
    assert "inference" in case.proved().captured.modes


def test_the_dtypes_of_mixed_precision_are_told(made: Callable[..., object]) -> None:
    found = made("sharded_in_bf16", "LossMLP", DP, input_layouts=ROWS).proved()
    notes = found.captured.ranks[0].notes
    assert "fully_shard gathers parameters in bfloat16." in notes
    assert "fully_shard reduces gradients in float32." in notes


def test_two_dims_of_a_mesh_shard_one_dim_of_a_weight(made: Callable[..., object]) -> None:
    found = made("sharded_and_split", "LossMLP", BOTH, input_layouts=ROWS).proved()
    held = layouts(found, BOTH)
    assert held["up.weight"] == "[2@tp 2@dp 4][8]"
    assert held["down.weight"] == "S(0)@dp,S(1)@tp"
    assert found.left == ("the gradient of x",)
    assert next(p.how for p in found.placed if p.name == "loss") == "its mean over dp"


WRONG = [
    ("summed_input", "MLP", TP, (), "output"),
    ("summed_gradients", "LossMLP", DP, ROWS, "grad:"),
    ("LossMLP", "LossMLP", DP, ROWS, "grad:"),
]


@pytest.mark.parametrize(
    ("name", "against", "mesh", "rows", "what"), WRONG, ids=[w[0] for w in WRONG]
)
def test_wrong_modules_are_refuted(
    made: Callable[..., object],
    name: str,
    against: str,
    mesh: Mesh,
    rows: Sequence[str],
    what: str,
) -> None:
    found = made(name, against, mesh, input_layouts=rows).refuted()
    assert found.verdict.witness.output.startswith(what)


def test_a_wrapper_that_names_no_arguments_gets_them_in_order(made: Callable[..., object]) -> None:
    made("Wrapper", "LossMLP", DP, input_layouts=ROWS, names=[("module.*", "*")]).proved()


def test_the_gradient_of_data_is_compared_where_it_is_asked_for(
    made: Callable[..., object],
) -> None:
    case = made("sharded", "LossMLP", DP, input_layouts=ROWS, grad_of_input=["x"])
    assert "input:x" in case.refuted().verdict.witness.output


def test_entries_of_rows_are_read_from_split_logits(made: Callable[..., object]) -> None:
    inputs = ["x=f32[3,8]", "target=i64[3]<16"]
    made("SplitPick", "Pick", TP, inputs=inputs, no_grad=["x"]).proved()


def test_overlapping_views_in_flight_are_refused(made: Callable[..., object]) -> None:
    """Where each comes late all is right, so what was traced does not refute it."""
    with pytest.raises(CaptureError, match="in flight"):
        made("Overlapping", "MLP", TP, no_grad=["x"]).check()


REFUSED = [
    ("averaged_with_a_hook", "LossMLP", DP, "communication hooks"),
    ("averaged_after_a_hook", "LossMLP", DP, "up.weight has a hook on its accumulated gradient"),
    ("averaged_before_a_hook", "LossMLP", DP, "up.weight has a hook on its accumulated gradient"),
]


@pytest.mark.parametrize(("name", "against", "mesh", "said"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_is_not_covered_is_refused(
    made: Callable[..., object], name: str, against: str, mesh: Mesh, said: str
) -> None:
    with pytest.raises(CaptureError) as error:
        made(name, against, mesh).check()
    assert said in f"{error.value.message} {error.value.hint}"


def test_a_rank_may_number_modules_on_its_own() -> None:
    own = ["local.0.up.weight", "local.1.up.weight", "gate.weight"]
    wanted = [*(f"experts.{i}.up.weight" for i in range(4)), "gate.weight"]
    stated = [("local.#.*", "experts.{2*ep+#}.*")]
    found = pair_names(own, wanted, stated, at={"ep": 1})
    assert list(found.values()) == ["experts.2.up.weight", "experts.3.up.weight", "gate.weight"]
    for target, said in (("experts.{2*tp+#}.*", "'tp' is not known"), ("experts.0.*", "are both")):
        with pytest.raises(CaptureError, match=said):
            pair_names(own, wanted, [("local.#.*", target)], at={"ep": 1})


def test_names_of_wrappers_of_pytorch_are_left_out() -> None:
    own = ["layers.0._checkpoint_wrapped_module.up.weight", "_orig_mod.head.weight"]
    wanted = ["layers.0.up.weight", "head.weight"]
    assert pair_names(own, wanted, ()) == dict(zip(own, wanted, strict=True))
