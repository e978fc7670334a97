"""Patches that split the sequence over ranks are proved, and agree; wrong twins are refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shardproof.agent.pipeline.patch_run import execute
from shardproof.agent.pipeline.pipeline import kinds
from shardproof.synthesis.emit import EmitError, Patch, emit
from shardproof.synthesis.emit.patch import patch as make_patch
from shardproof.synthesis.execute.job import collect_facts
from shardproof.synthesis.execute.reading import read_patch
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.assign import PlanError
from shardproof.synthesis.planner.plan import from_json, to_json
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Verdict

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("gloo")]

GPT = Path(__file__).parents[2] / "examples" / "nanogpt.py"
SMALL = {"n_layer": 2, "n_embd": 16, "n_head": 4, "vocab_size": 32, "block_size": 8}
CP = Mesh.of(cp=2)


@dataclass(frozen=True)
class Model:
    """A model as it was captured, and a plan for a mesh."""

    request: CaptureRequest
    captured: Captured
    made: Synthesis

    @property
    def patch(self) -> Patch:
        return emit(collect_facts(self.request), self.made.plan, self.root, inline=True)

    @property
    def root(self) -> Path | None:
        file = self.request.target.rpartition(":")[0]
        return None if file == "hf" else Path(file).parent

    def judged(self, patch: Patch) -> Verdict:
        made, held = self.made, self.captured
        read = read_patch(
            self.request,
            patch,
            made.plan,
            held.facts,
            made.sequential,
            made.contract,
            held.consts,
        )
        return verify(Problem(made.sequential, read.program, read.contract, consts=held.consts))


def planned(request: CaptureRequest, mesh: Mesh) -> Model:
    held = capture(request)
    asked = Asked(held.program, mesh, load("h100"), kinds(held), split_loss=False, patched=True)
    return Model(request, held, synthesize(asked))


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> CaptureRequest:
    path = tmp_path_factory.mktemp("gpt") / "gpt.py"
    short = GPT.read_text().replace("batch: int = 4, seq: int = 32", "batch: int = 4, seq: int = 8")
    path.write_text(short.replace("GPTConfig.vocab_size", "32"))
    return CaptureRequest(f"{path}:GPT", SMALL)


@pytest.fixture(scope="module")
def split(gpt: CaptureRequest) -> Model:
    return planned(gpt, CP)


@pytest.mark.parametrize("mesh", [CP, Mesh.of(dp=2, cp=2), Mesh.of(cp=2, tp=2)], ids=str)
def test_rows_over_ranks_are_proved_and_agree(gpt: CaptureRequest, mesh: Mesh) -> None:
    model = planned(gpt, mesh)
    patch, plan = model.patch, model.made.plan
    assert isinstance(verdict := model.judged(patch), Proof), verdict
    assert from_json(to_json(plan)) == plan
    ran = execute(gpt, patch, plan)
    assert ran.failed is None, ran.failed
    assert ran.agrees, ran.worst


@pytest.mark.parametrize("name", ["Llama", "Qwen2"])
def test_rotary_positions_and_shared_keys_are_proved(name: str) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    request = CaptureRequest(f"hf:{name}ForCausalLM", sizes | heads, batch=2, seq=8)
    model = planned(request, CP)
    assert isinstance(verdict := model.judged(model.patch), Proof), verdict


Edit = Callable[[str], str]


def changed(old: str, new: str) -> Edit:
    def edit(text: str) -> str:
        assert old in text, old
        return text.replace(old, new)

    return edit


ATTEND = """    for block in model.h:
        context.attend(block.attn, {"c_attn": 3}, "c_proj")
"""
SPLIT = "    context.split(model.h[0])\n"
ROWS = """    context.split(model.wte)
    model.wpe.register_forward_pre_hook(lambda m, args: (args[0].chunk(cp.size())[{}],))
"""
SHARD = """    for block in model.h:
        fully_shard(block, mesh=mesh["cp"])
    fully_shard(model, mesh=mesh["cp"])
"""
BACK = "Exchanged.apply(grad, *ctx.back)"
HEADS = "Exchanged.apply(args[0], 1, 2, self.cp)"
JOIN = "torch.cat(got.unbind(), join)"
OWN = "target.view(-1, ranks, self.rows)[:, rank]"
TWINS = {
    "keys of own rows alone, under a mask without offset": changed(ATTEND, ""),
    "positions without offset": changed(SPLIT, ROWS.format(0)),
    "gradients not reduced": changed(SHARD, ""),
    "loss scaled twice": changed("total * ranks /", "total * ranks * ranks /"),
    "loss of own rows over all labels": changed("total * ranks /", "total /"),
    "keys in another order": changed(JOIN, JOIN.replace("()", "()[::-1]")),
    "gradients of rows of another sequence": changed(BACK, BACK.replace("grad", "grad.flip(0)")),
    "labels shifted inside of own rows": changed(OWN, f"F.pad({OWN}, (1, 0))[:, :-1]"),
    "labels of the next rank": changed(OWN, OWN.replace("[:", ".roll(1, 1)[:")),
    "rows moved by one": changed("own = x.narrow(", "own = x.roll(1, 1).narrow("),
    "queries of other heads than keys": changed('{"c_attn": 3}', '{"c_attn": 1}'),
    "heads not sent back": changed(HEADS, "args[0].narrow(1, 0, self.rows).repeat(1, 1, 2)"),
}


def edited(patch: Patch, edit: Edit) -> Patch:
    ((path, (before, after)),) = patch.files.items()
    other = make_patch({path: (before, edit(after))}, patch.obligations, patch.entry)
    return replace(other, function=patch.function)


@pytest.mark.parametrize("name", TWINS)
def test_wrong_twin_is_refuted_without_a_run(split: Model, name: str) -> None:
    verdict = split.judged(edited(split.patch, TWINS[name]))
    assert isinstance(verdict, Counterexample), verdict


def test_positions_of_own_rows_are_proved(split: Model) -> None:
    own = changed(SPLIT, ROWS.format("cp.get_local_rank()"))
    assert isinstance(verdict := split.judged(edited(split.patch, own)), Proof), verdict


def test_what_cannot_be_split_is_refused(gpt: CaptureRequest, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="4 heads do not divide by 8"):
        planned(gpt, Mesh.of(cp=8))
    with pytest.raises(PlanError, match="8 rows, which do not divide"):
        planned(gpt, Mesh.of(cp=3))
    plain = Path(__file__).parents[2] / "examples" / "mlp.py"
    with pytest.raises(PlanError, match="no module holds projections of heads"):
        planned(CaptureRequest(f"{plain}:MLP"), CP)
    other = tmp_path / "other.py"
    text = Path(gpt.target.partition(":")[0]).read_text()
    other.write_text(text.replace("index=-1", "index=-1, label_smoothing=0.1"))
    with pytest.raises(EmitError, match="label_smoothing"):
        _ = planned(CaptureRequest(f"{other}:GPT", SMALL), CP).patch
