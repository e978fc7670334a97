"""Patches, read again from their source on each rank, are proved; wrong ones are not."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import shardproof.agent.pipeline.writing
from shardproof.agent.actions.models import Parallelize
from shardproof.agent.pipeline.pipeline import job_of, parallelize
from shardproof.agent.pipeline.writing import UNREAD, not_proved
from shardproof.agent.run import events
from shardproof.agent.run.run import Run
from shardproof.runtime.source import digest
from shardproof.synthesis.emit import EmitError, Patch, emit
from shardproof.synthesis.emit.patch import patch as make_patch
from shardproof.synthesis.execute.job import collect_facts
from shardproof.synthesis.execute.reading import OUTSIDE, Reading, added_up, read_patch
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.synthesis.planner.plan import ModulePlan, Plan
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict, Witness

_place = Path(__file__).parents[1] / "emit" / "models.py"
_spec = importlib.util.spec_from_file_location("emit_models", _place)
assert _spec
assert _spec.loader
models = importlib.util.module_from_spec(_spec)
sys.modules["emit_models"] = models
_spec.loader.exec_module(models)

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("gloo")]

L = "model.layers.*."
VOCABULARY = 96
DP, TP, BOTH = Mesh.of(dp=2), Mesh.of(tp=2), Mesh.of(dp=2, tp=2)


@dataclass(frozen=True)
class Model:
    """A model as it was captured."""

    request: CaptureRequest
    captured: Captured

    @property
    def sequential(self) -> Program:
        return live(inline(self.captured.program))

    def planned(self, plan: Plan) -> Contract:
        """Inputs, outputs and what comes back to them are split over `dp`, outputs of a plan with
        a loss over split logits over `tp` as well; all else is whole."""

        def layout(shape: tuple[int, ...], split: bool) -> Layout:
            names: list[tuple[str, int, str]] = []
            if split and plan.dp is not None:
                names.append((plan.dp, plan.batch_ranks, "S(0)"))
            if split and plan.tp is not None and plan.loss_parallel and shape[-1] == VOCABULARY:
                names.append((plan.tp, plan.tp_size, "S(-1)"))
            return from_placements(shape, names)

        program = self.sequential
        return Contract(
            {i.name: layout(i.type.shape, i.role != "param") for i in program.inputs},
            {
                output_key(o): layout(program.types[o.value].shape, o.role == "output")
                for o in program.outputs
            },
        )

    def read(self, patch: Patch, plan: Plan) -> Reading:
        held = self.captured
        return read_patch(
            self.request, patch, plan, held.facts, self.sequential, self.planned(plan), held.consts
        )

    def judged(self, patch: Patch, plan: Plan) -> Verdict:
        return word(self, self.read(patch, plan))


def edited(patch: Patch, old: str, new: str) -> Patch:
    """The patch with one text of what it writes replaced."""
    ((path, (before, after)),) = patch.files.items()
    assert old in after
    other = make_patch({path: (before, after.replace(old, new))}, patch.obligations, patch.entry)
    return replace(other, function=patch.function)


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Plan, Patch]:
    path = tmp_path_factory.mktemp("block") / "block.py"
    path.write_text(models.SOURCE)
    inputs = (InputSpec("x", (4, 4, 8)),)
    request = CaptureRequest(f"{path}:Attention", {"n": 8, "heads": 4}, inputs=inputs)
    plan = models.plan(str(path))
    patch = emit(collect_facts(request), plan, path.parent)
    return Model(request, capture(request)), plan, patch


def test_block_with_fused_heads_is_proved(block: tuple[Model, Plan, Patch]) -> None:
    model, plan, patch = block
    reading = model.read(patch, plan)
    ops = Counter(node.op for node in reading.program.nodes)
    # forward: the row layer; backward: the bias of qkv, kept whole (x itself needs no gradient)
    assert ops["all_reduce"] == 2
    assert str(reading.contract.inputs["qkv.weight"]) == "[3 2@tp 4, 8]"  # three parts along dim 0
    assert reading.ranks == (0, 1)
    assert reading.assumptions == ()
    verdict = verify(Problem(model.sequential, reading.program, reading.contract))
    assert isinstance(verdict, Proof), verdict
    assert verdict.stats["outputs"] == 5  # the output and four gradients


def test_block_whose_batch_is_split_as_well_is_proved(block: tuple[Model, Plan, Patch]) -> None:
    model, plan, _ = block
    plan = replace(plan, mesh=BOTH, dp="dp", data="fsdp")
    reading = model.read(emit(collect_facts(model.request), plan, _folder(model)), plan)
    assert reading.ranks == (0, 1, 2, 3)
    assert reading.contract.inputs["qkv.weight"].sharded == {"dp", "tp"}
    verdict = verify(Problem(model.sequential, reading.program, reading.contract))
    assert isinstance(verdict, Proof), verdict
    # no loss in the model: what comes back to a rank is that of a mean over its own rows
    assert OUTSIDE.format(kind="mean", dp="dp") in verdict.assumptions


def _folder(model: Model) -> Path:
    return Path(model.request.target.rpartition(":")[0]).parent


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("split_factor=parts", "split_factor=1"),
        ("return self.out(", "return self.out.bias.to_local() + self.out("),
    ],
    ids=["heads in the wrong order", "bias on every rank"],
)
def test_wrong_block_is_refuted(block: tuple[Model, Plan, Patch], old: str, new: str) -> None:
    model, plan, _ = block
    patch = emit(collect_facts(model.request), plan, _folder(model), inline=True)
    verdict = model.judged(edited(patch, old, new), plan)
    assert isinstance(verdict, Counterexample)
    assert "output:output" in verdict.wrong_outputs


def test_ranks_that_run_different_programs_are_not_joined(block: tuple[Model, Plan, Patch]) -> None:
    model, plan, patch = block
    factor = "(1 + self.out.weight.device_mesh.get_local_rank()) * "
    other = edited(patch, "return self.out(", f"return {factor}self.out(")
    with pytest.raises(CaptureError, match=r"ranks (differ|have|run)"):
        model.read(other, plan)


def test_a_patch_that_is_not_applied_is_not_read(block: tuple[Model, Plan, Patch]) -> None:
    model, plan, patch = block
    with pytest.raises(EmitError):
        model.read(replace(patch, diff=patch.diff.replace("\n-", "\n-x", 3)), plan)


def test_llama_with_vocabulary_parallel_loss_and_shared_heads_is_proved(tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
    }
    request = CaptureRequest("hf:LlamaForCausalLM", sizes, batch=2, seq=8)
    modules = [ModulePlan("model.embed_tokens", "Embedding", "vocab")]
    for name in ("self_attn.q", "mlp.gate", "mlp.up"):
        modules.append(ModulePlan(f"{L}{name}_proj", "Linear", "column", "R", "S(-1)"))
    for name in ("self_attn.k", "self_attn.v"):
        modules.append(ModulePlan(f"{L}{name}_proj", "Linear", "kv_column", "R", "S(-1)", parts=2))
    for name in ("self_attn.o", "mlp.down"):
        modules.append(ModulePlan(f"{L}{name}_proj", "Linear", "row", "S(-1)", "R"))
    modules.append(ModulePlan("lm_head", "Linear", "column", "R", "S(-1)"))
    plan = Plan(Mesh.of(tp=4), tp="tp", loss_parallel=True, modules=tuple(modules))
    facts = collect_facts(request)
    model = Model(request, capture(request))
    verdict = model.judged(emit(facts, plan, tmp_path), plan)
    assert isinstance(verdict, Proof), verdict
    assert "Every label names a class or is -100." in verdict.assumptions
    patch = emit(facts, plan, tmp_path, inline=True)
    assert "from shardproof" not in patch.files["parallel_llama.py"][1]
    wrong = edited(patch, "tp.get_local_rank() * vocab", "0 * vocab")
    assert isinstance(model.judged(wrong, plan), Counterexample)
    wrong = edited(patch, "* self.heads // device_mesh.size()", "% self.heads")
    with pytest.raises(CaptureError, match=r"ranks differ: slice .*self_attn\.k_proj"):
        model.read(wrong, plan)


SIDE_BY_SIDE = """from torch import nn

ACT = nn.SiLU()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.LayerNorm(8), nn.LayerNorm(8)
        self.mix, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.act = ACT

    def forward(self, x):
        return x + self.mix(self.one(x)) + self.down(self.act(self.up(self.two(x))))


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Embedding(32, 8)
        self.layers = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, tokens):
        x = self.first(tokens)
        for layer in self.layers:
            x = layer(x)
        return x
"""


@pytest.mark.parametrize(
    ("mesh", "modules"),
    [
        (DP, ()),
        (
            TP,
            (
                ModulePlan("layers.*.up", "Linear", "column", "R", "S(-1)"),
                ModulePlan("layers.*.down", "Linear", "row", "S(-1)", "R"),
            ),
        ),
    ],
    ids=["dp", "tp"],
)
def test_blocks_with_side_by_side_branches_and_one_activation_are_rolled(
    tmp_path: Path, mesh: Mesh, modules: tuple[ModulePlan, ...]
) -> None:
    path = tmp_path / "side.py"
    path.write_text(SIDE_BY_SIDE)
    request = CaptureRequest(f"{path}:M", inputs=(InputSpec("tokens", (4, 6), "i64", 32),))
    model = Model(request, capture(request))
    assert any(n.op == "scan" for n in model.captured.program.nodes)
    plan = replace(on(mesh), modules=modules)
    reading = model.read(emit(collect_facts(request), plan, tmp_path), plan)
    assert isinstance(word(model, reading), Proof)
    assert any(path.startswith("layers.*.") for path in {i.path for i in reading.program.inputs})


NEAR = """import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(8, 8)

    def forward(self, x):
        far = torch.arange(6) - 1
        near = self.w(x).gather(-1, far.clamp(0, 3).expand(x.shape[0], -1))
        return near.masked_fill((far < 0) | (far >= 4), 0.0)
"""


def test_a_lookup_in_what_is_computed_is_read_as_capture_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "near.py"
    path.write_text(NEAR)
    request = CaptureRequest(f"{path}:M", inputs=(InputSpec("x", (4, 8)),))
    model, plan = Model(request, capture(request)), on(TP)
    reading = model.read(emit(collect_facts(request), plan, tmp_path), plan)
    assert isinstance(word(model, reading), Proof)


LAYERS = '''"""Two layers."""

from torch import nn
from torch.nn import functional as F


class M(nn.Module):
    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 2)

    def forward(self, x, target):
        return F.mse_loss(self.down(F.relu(self.up(x))), target, reduction=self.reduction)
'''
HEAD = """

def parallelize(model, mesh):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Partial, Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

"""
TENSOR = 'parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": %s})'
ROW = TENSOR % "RowwiseParallel()"
SHARD = 'fully_shard(model, mesh=mesh["dp"])'
APART = (
    *(f'fully_shard(model.{name}, mesh=mesh["dp"])' for name in ("up", "down")),
    SHARD,
)
SUMMED = (
    "model.set_gradient_divide_factor(1.0)",
    "model.set_force_sum_reduction_for_comms(True)",
)


def by_hand(*lines: str) -> Patch:
    """A patch of the two layers whose `parallelize` runs these lines."""
    text = HEAD + "".join(f"    {line}\n" for line in (*lines, "return model"))
    return make_patch({"layers.py": (LAYERS, LAYERS + text)}, (), "")


def on(mesh: Mesh, loss: str = "mean") -> Plan:
    tp = "tp" if "tp" in mesh.names else None
    dp = "dp" if "dp" in mesh.names else None
    return Plan(mesh, tp=tp, dp=dp, data="fsdp" if dp else "none", loss=loss)


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Model]:
    """The two layers, by what their loss is of those of the rows."""
    path = tmp_path_factory.mktemp("layers") / "layers.py"
    path.write_text(LAYERS)
    inputs = (InputSpec("x", (8, 4)), InputSpec("target", (8, 2)))
    requests = {
        name: CaptureRequest(f"{path}:M", {"reduction": name}, inputs=inputs)
        for name in ("mean", "sum")
    }
    return {name: Model(request, capture(request)) for name, request in requests.items()}


Read = Callable[..., Reading]


@pytest.fixture(scope="module")
def read(layers: Mapping[str, Model]) -> Read:
    """What the ranks of a patch of the two layers run, each read once."""

    @cache
    def read(reduction: str, mesh: Mesh, *lines: str) -> Reading:
        return layers[reduction].read(by_hand(*lines), on(mesh))

    return read


def word(model: Model, reading: Reading) -> Verdict:
    consts = model.captured.consts
    return verify(Problem(model.sequential, reading.program, reading.contract, consts=consts))


def test_readings_of_one_model_share_what_ops_give(
    layers: Mapping[str, Model], tmp_path: Path
) -> None:
    model, place = layers["mean"], tmp_path / "shared"
    found, times = list[Program](), set[int]()
    for line in (ROW, ROW, SHARD):
        plan = on(DP if line == SHARD else TP)
        reading = read_patch(
            model.request,
            by_hand(line),
            plan,
            model.captured.facts,
            model.sequential,
            model.planned(plan),
            model.captured.consts,
            known_ops=place,
        )
        found.append(reading.program)
        assert isinstance(word(model, reading), Proof)
        times.add((place / "known-ops.pickle").stat().st_mtime_ns)
    assert len(times) == 1
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("mesh", "lines"), [(DP, (SHARD,)), (BOTH, (ROW, *APART))], ids=["whole", "by layer"]
)
def test_fully_sharded_layers_are_proved(
    layers: Mapping[str, Model], read: Read, mesh: Mesh, lines: tuple[str, ...]
) -> None:
    reading = read("mean", mesh, *lines)
    assert all(reading.contract.inputs[f"{m}.weight"].sharded >= {"dp"} for m in ("up", "down"))
    ops = Counter(n.op for n in reading.program.nodes if n.attrs.get("mesh_dim") == "dp")
    assert ops["all_gather"] >= 4  # each parameter, one by one
    assert ops["reduce_scatter"] == 4
    verdict = word(layers["mean"], reading)
    assert isinstance(verdict, Proof), verdict


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ((SHARD, *SUMMED), {"up.weight", "up.bias", "down.weight", "down.bias"}),
        (('fully_shard(model.up, mesh=mesh["dp"])',), {"down.weight", "down.bias"}),
    ],
    ids=["summed", "down left out"],
)
def test_gradients_that_are_not_averaged_are_refuted(
    layers: Mapping[str, Model], read: Read, lines: tuple[str, ...], wrong: set[str]
) -> None:
    verdict = word(layers["mean"], read("mean", DP, *lines))
    assert isinstance(verdict, Counterexample)
    assert set(verdict.wrong_outputs) == {f"grad:{name}" for name in wrong}


def test_layer_that_does_not_add_up_its_shares_is_refuted(
    layers: Mapping[str, Model], read: Read
) -> None:
    shares = TENSOR % "RowwiseParallel(output_layouts=Partial())"
    verdict = word(layers["mean"], read("mean", TP, shares))
    assert isinstance(verdict, Counterexample)
    assert "loss:loss" in verdict.wrong_outputs


def test_layer_of_another_style_is_not_traced(read: Read) -> None:
    column = TENSOR % "ColwiseParallel(output_layouts=Replicate())"
    with pytest.raises(CaptureError) as caught:
        read("mean", TP, column)
    assert "layers.py" in str(caught.value)


@pytest.mark.parametrize("loss", ["mean", "sum"])
@pytest.mark.parametrize("reduced", [(), SUMMED], ids=["averaged", "added up"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_goes_with_how_its_gradients_are_reduced(
    layers: Mapping[str, Model], read: Read, reduction: str, reduced: tuple[str, ...], loss: str
) -> None:
    """`loss` is what the plan says that the loss of one device is of those of the ranks."""
    reading = read(reduction, DP, SHARD, *reduced)
    if loss == "sum":
        reading = replace(reading, program=added_up(reading.program, on(DP, "sum")))
    verdict = word(layers[reduction], reading)
    right = reduction == loss and (reduction == "sum") == (reduced == SUMMED)
    assert isinstance(verdict, Proof if right else Counterexample), verdict


def test_a_plan_says_what_the_loss_of_all_ranks_is(layers: Mapping[str, Model], read: Read) -> None:
    reading = layers["sum"].read(by_hand(SHARD, *SUMMED), on(DP, "sum"))
    assert reading.program == added_up(read("sum", DP, SHARD, *SUMMED).program, on(DP, "sum"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    return model\n", "    raise RuntimeError('no mesh')\n", f"{UNREAD}: "),
        ("return self.out(", "return 2 * self.out(", "the plan is proved, but its patch differs"),
    ],
    ids=["not traced", "wrong"],
)
def test_plan_with_a_patch_that_is_not_proved_ends_unknown(
    block: tuple[Model, Plan, Patch],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    said: str,
) -> None:
    def broken(*given: Any, **more: Any) -> Patch:
        return edited(emit(*given, **more), old, new)

    monkeypatch.setattr(shardproof.agent.pipeline.writing, "emit", broken)
    out, run = tmp_path / "out", Run([])
    request = block[0].request
    asked = Parallelize(target=request.target, mesh="tp=2", run=False)
    outcome = parallelize(run, job_of(asked, out, request))
    assert (outcome.verdict, int(outcome.exit)) == ("unknown", 1)
    (reached,) = [e for e in run.seen if isinstance(e, events.VerdictReached)]
    assert said in reached.message
    assert not {"patch.diff", "certificate.json"} & {p.name for p in out.iterdir()}


@pytest.mark.parametrize(
    ("dims", "output", "said"),
    [
        ({"dp": 2}, "loss:loss", "samples of it meet here: the loss of all is not the mean"),
        ({"dp": 2}, "output:y", "the output of all is not those of its parts side by side"),
        ({"dp": 2}, "grad:w", "its patch differs from one device: grad:w is 1, expected 2"),
        ({"tp": 2}, "loss:loss", "its patch differs from one device: loss:loss is 1, expected 2"),
        ({"dp": 2, "tp": 2}, "loss:loss", "its patch differs from one device"),
    ],
)
def test_a_batch_that_is_one_whole_is_told_from_a_wrong_patch(
    dims: Mapping[str, int], output: str, said: str
) -> None:
    wrong = Counterexample("", Witness(output, {}, (), 2.0, 1.0, {}))
    tp, dp = (name if name in dims else None for name in ("tp", "dp"))
    verdict = not_proved(wrong, Plan(Mesh.of(**dims), tp, dp))
    assert isinstance(verdict, Unknown)
    assert said in verdict.reason


TWINS = '''"""Two layers of one shape."""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.down = nn.Linear(8, 8)
        self.register_buffer("scale", torch.full((8,), 2.0))

    def forward(self, x):
        return (self.down(torch.relu(self.up(x))) * self.scale).square().mean()
'''


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("twins") / "twins.py"
    path.write_text(TWINS)
    request = CaptureRequest(f"{path}:M", {}, inputs=(InputSpec("x", (8, 8)),))
    return Model(request, capture(request))


def of_twins(*lines: str) -> Patch:
    text = HEAD + "".join(f"    {line}\n" for line in (*lines, "return model"))
    return make_patch({"twins.py": (TWINS, TWINS + text)}, (), "")


def test_twins_that_are_placed_alone_are_proved(twins: Model) -> None:
    assert isinstance(twins.judged(of_twins(ROW, *APART), on(BOTH)), Proof)


SPEC = "model.down.weight.data._spec"
TWICE = "model.up.weight.data.mul_(2)"


NORMED = """import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.norm(self.down(torch.relu(self.up(x))))).square().mean()
"""
STYLED = """
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import SequenceParallel
down = RowwiseParallel(output_layouts=Shard(0))
head = ColwiseParallel(output_layouts=Replicate())
norm = SequenceParallel(sequence_dim=0)
styles = {"up": ColwiseParallel(), "down": down, "norm": norm, "head": head}
parallelize_module(model, mesh["tp"], styles)
"""


def test_a_norm_of_split_rows_whose_weights_stay_whole_is_proved(tmp_path: Path) -> None:
    path = tmp_path / "normed.py"
    path.write_text(NORMED)
    request = CaptureRequest(f"{path}:M", {}, inputs=(InputSpec("x", (8, 8)),))
    model = Model(request, capture(request))
    lines = (*STYLED.strip().splitlines(), *APART, "return model")
    text = HEAD + "".join(f"    {line}\n" for line in lines)
    patch = make_patch({"normed.py": (NORMED, NORMED + text)}, (), "")
    assert isinstance(model.judged(patch, on(BOTH)), Proof)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((TWICE, ROW, *APART), r"aten\.mul_.*\n?.*twins\.py"),
        ((ROW, TWICE, *APART), r"aten\.mul_"),
        ((ROW, *APART, TWICE), r"aten\.mul_"),
        ((ROW, *APART, "nn.init.zeros_(model.up.bias)"), r"aten\.zero_"),
        (("model.up.bias = nn.Parameter(torch.zeros(8))", ROW, *APART), r"aten\.zeros"),
        (
            ("model.up.weight, model.down.weight = model.down.weight, model.up.weight", ROW),
            "changes the values of (up|down).weight",
        ),
        (("model.up.weight.data = model.down.weight.data", ROW), "changes .* up.weight"),
        (("model.up.weight = nn.Parameter(model.up.weight.t())", ROW), r"aten\.t\."),
        (("model.scale.fill_(1.0)", ROW), r"aten\.fill_"),
        (("model.scale = torch.ones(8)", ROW), r"aten\.ones"),
        (("torch.distributed.all_reduce(model.up.bias.data)", ROW), "c10d.allreduce_"),
        (
            (
                "from torch.distributed.tensor import distribute_module",
                "twice = lambda name, m, mesh: [p.data.mul_(2) for p in m.parameters(False)]",
                'distribute_module(model, mesh["tp"], twice)',
                ROW,
            ),
            r"aten\.mul_",
        ),
        (
            (
                "from torch.distributed.tensor import distribute_tensor, zeros",
                'fresh = zeros(8, device_mesh=mesh["tp"], placements=[Replicate()])',
                ROW,
                "model.down.bias = nn.Parameter(fresh)",
            ),
            "makes or changes",
        ),
        (
            (
                "from torch.distributed.tensor import DTensor",
                'sums = DTensor.from_local(model.up.bias.data, mesh["tp"], [Partial()])',
                "sums = sums.redistribute(placements=[Replicate()])",
                "model.up.bias = nn.Parameter(sums.to_local())",
                *APART,
            ),
            "makes or changes DTensor.from_local",
        ),
        ((ROW, f"{SPEC}.placements = (Replicate(),)"), "makes or changes a DTensorSpec"),
        ((ROW, "w = model.down.weight", "w._spec = model.up.weight._spec"), "DTensor._spec"),
        ((ROW, "w = model.down.weight.data", "w._local_tensor = w._local_tensor"), "_local_tensor"),
        (
            (
                "from torch.distributed.tensor import DTensor",
                ROW,
                "w = model.down.weight.data",
                "w = DTensor(w._local_tensor, w._spec, requires_grad=False)",
                "model.down.weight = nn.Parameter(w)",
            ),
            "makes or changes DTensor by itself",
        ),
        (
            (ROW, "model.down.weight = nn.Parameter(model.down.weight.to_local())"),
            "puts a piece in place of down.weight",
        ),
        (
            (
                "from torch.distributed.tensor import distribute_tensor",
                'half = distribute_tensor(model.up.bias.data, mesh["tp"], [Partial()])',
                "model.up.bias = nn.Parameter(half.to_local())",
                *APART,
            ),
            "makes or changes DTensor by itself",
        ),
        (
            (
                "from torch.distributed.tensor import DTensor, Shard, distribute_tensor",
                'dp = distribute_tensor(model.up.weight.data, mesh["dp"], [Shard(0)])',
                'tp = distribute_tensor(model.up.weight.data, mesh["tp"], [Shard(0)])',
                "make = torch.Tensor._dtensor__new__",
                "lie = make(DTensor, tp._local_tensor, dp._spec, requires_grad=False)",
                "model.up.weight = nn.Parameter(lie)",
            ),
            "makes or changes DTensor._spec",
        ),
        (
            (
                "from torch.distributed.tensor import Shard, distribute_tensor",
                'dp = distribute_tensor(model.up.weight.data, mesh["dp"], [Shard(0)])',
                'tp = distribute_tensor(model.up.weight.data, mesh["tp"], [Shard(0)])',
                'object.__setattr__(tp, "_spec", dp._spec)',
                "model.up.weight = nn.Parameter(tp)",
            ),
            "makes or changes DTensor._spec",
        ),
        (
            (*APART, "a = model.down.weight", "model.up._apply(lambda p: a if p.ndim == 2 else p)"),
            "changes the values of up.weight",
        ),
        (("model.up.bias = None", ROW), "takes up.bias away"),
        (("model.extra = nn.Parameter(model.up.bias.data)", ROW), "adds extra"),
    ],
)
def test_parameters_may_be_placed_but_not_changed(
    twins: Model, lines: tuple[str, ...], told: str
) -> None:
    with pytest.raises(CaptureError, match=told):
        twins.read(of_twins(*lines), on(BOTH))


def test_pieces_of_ranks_in_another_order_are_refused(twins: Model) -> None:
    other = (
        "from torch.distributed.device_mesh import DeviceMesh",
        'back = DeviceMesh("cpu", [1, 0], mesh_dim_names=("tp",))',
        ROW.replace('mesh["tp"]', "back"),
    )
    with pytest.raises(CaptureError, match="not a part of"):
        twins.read(of_twins(*other), on(TP))


def test_a_hook_that_writes_to_a_parameter_is_not_proved(twins: Model) -> None:
    hook = "model.up.register_forward_hook(lambda m, a, y: m.weight.data.mul_(2) and None)"
    with pytest.raises(CaptureError):
        twins.read(of_twins(ROW, hook), on(TP))


@pytest.mark.parametrize(
    "line",
    [
        "model.up.register_forward_hook(lambda m, a, y: setattr(y, 'data', y.data * 2))",
        "model.up.register_forward_pre_hook(lambda m, a: setattr(a[0], 'data', a[0].data * 2))",
        "model.up.register_forward_pre_hook(lambda m, a: setattr(m.bias, 'data', m.bias.data * 2))",
        "model.up.register_forward_hook(lambda m, a, y: setattr(y, 'data', y.data.flip(0)))",
        "model.up.bias.register_post_accumulate_grad_hook("
        "lambda p: setattr(p.grad, 'data', p.grad.data * 2))",
    ],
)
def test_memory_that_is_given_without_an_op_is_not_proved(twins: Model, line: str) -> None:
    with suppress(CaptureError):
        assert isinstance(twins.judged(of_twins(line), on(TP)), Counterexample)


TAMPERED = """
from shardproof.runtime import placement


def forged(x, mesh, grad_placement):
    return {body}


placement.whole_input = forged
"""
COMPILED = """
from shardproof.runtime import placement, source

text = source.text().replace("split_factor=parts", "split_factor=1")
exec(compile(text, placement.__file__, "exec"), placement.__dict__)
FusedColwiseParallel = placement.FusedColwiseParallel
"""


@pytest.mark.parametrize(
    "forged", [TAMPERED.format(body="2 * x"), TAMPERED.format(body="x.flip(0)"), COMPILED]
)
def test_a_changed_runtime_is_traced_as_it_runs(
    block: tuple[Model, Plan, Patch], forged: str
) -> None:
    model, plan, patch = block
    other = edited(patch, "\n\n\n# Made by shardproof", f"\n{forged}\n\n# Made by shardproof")
    other = replace(other, diff=make_patch(other.files, (), "").diff)
    assert isinstance(model.judged(other, plan), Counterexample)


def test_a_patch_of_another_runtime_is_not_read(block: tuple[Model, Plan, Patch]) -> None:
    model, plan, patch = block
    with pytest.raises(CaptureError, match=r"proved with shardproof.runtime 0{12}"):
        model.read(edited(patch, digest(), "0" * 12), plan)


@pytest.mark.parametrize("name", ["shardproof.py", "shardproof/runtime.py"])
def test_a_runtime_that_hides_ours_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "twins.py"
    path.write_text(TWINS)
    request = CaptureRequest(f"{path}:M", {}, inputs=(InputSpec("x", (8, 8)),))
    model = Model(request, capture(request))
    hiding = tmp_path / name
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("OwnOutput = None\n")
    with pytest.raises(CaptureError, match="hides the package shardproof"):
        model.read(of_twins(ROW, *APART), on(BOTH))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            (
                "from shardproof.runtime import placement as ours",
                'code = compile("def twice(t): t.mul_(2)", ours.__file__, "exec")',
                "exec(code, vars(ours))",
                "ours.twice(model.up.weight.data)",
                ROW,
            ),
            r"aten\.mul_",
        ),
        (
            (
                "from shardproof.runtime import placement as ours",
                "ours.place_each = lambda m, _: {m: [p.data.mul_(2) for p in m.parameters()]}",
                "ours.replicate_rest(model.up, mesh['tp'])",
            ),
            r"aten\.mul_",
        ),
        (
            (
                "from shardproof.runtime import proved_mesh",
                "from shardproof.runtime.source import digest",
                'proved_mesh(model, mesh, {"dp": 4, "tp": 2}, digest())',
            ),
            "is proved for the mesh",
        ),
        (
            (
                "from shardproof.runtime import proved_mesh",
                "from shardproof.runtime.source import digest",
                'proved_mesh(model, mesh, {"tp": 2, "dp": 2}, digest())',
            ),
            "is proved for the mesh",
        ),
    ],
)
def test_the_runtime_places_parameters_and_nothing_else(
    twins: Model, lines: tuple[str, ...], told: str
) -> None:
    with pytest.raises(CaptureError, match=told):
        twins.read(of_twins(*lines), on(BOTH))
