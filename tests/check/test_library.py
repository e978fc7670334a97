"""Classes of transformers, split over ranks by the library's own code as their plans say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shardproof.agent.check import in_source, judging
from shardproof.agent.check.contract import Statements, placement
from shardproof.agent.check.in_source import Asking, InSource
from shardproof.agent.check.judging import Checked, Compared
from shardproof.agent.cli.main import app
from shardproof.agent.patching.tree import apply_texts, undo
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.request import RanksRequest
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured, load
from shardproof.synthesis.frontends.torch.ranks.session import save_ranks
from shardproof.synthesis.repair.in_source import Rewrite
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof

pytestmark = [pytest.mark.torch, pytest.mark.hf]
TP = Mesh.of(tp=2)
QWEN = "hf:Qwen3ForCausalLM"
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "vocab_size": 24,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}
LATENT = {
    **SMALL,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}
Check = Callable[..., Checked]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def run(
        plan: str | dict[str, str],
        mesh: Mesh = TP,
        name: str = QWEN,
        config: dict[str, int] = SMALL,
        seq: int = 4,
    ) -> Checked:
        request = RanksRequest(
            name, name, mesh, config, batch=2, seq=seq, tp_plan=plan, modes=("train",)
        )
        save_ranks(request.to_json(), tmp_path, lambda _: None)
        found = judging.check_modes(load(tmp_path), Statements(), lambda _: None)
        return found[0] if isinstance(found[-1].verdict, Proof) else found[-1]

    return run


def test_a_published_plan_is_proved_with_every_gradient(check: Check) -> None:
    found = check("auto")
    assert isinstance(found.verdict, Proof), found.verdict
    held = {p.name.removeprefix("model.layers.0."): p for p in found.placed}
    assert placement(held["mlp.down_proj.weight"].layout, TP) == "S(1)@tp"
    assert held["mlp.down_proj.weight"].how == "from its placements"
    assert placement(held["self_attn.q_norm.weight"].layout, TP) == "R"


def test_keys_that_are_written_in_pieces_are_related(check: Check) -> None:
    found = check("auto", name="hf:DeepseekV3ForCausalLM", config=LATENT, seq=8)
    assert isinstance(found.verdict, Proof), found.verdict


def test_a_plan_without_the_sum_of_a_gradient_is_refuted_at_that_parameter(check: Check) -> None:
    found = check({"model.layers.*.self_attn.q_norm": "replicate"})
    assert isinstance(found.verdict, Counterexample), found.verdict
    assert found.verdict.witness.output == "grad:model.layers.0.self_attn.q_norm.weight"


def test_a_plan_is_repaired_in_its_file(check: Check, tmp_path: Path) -> None:
    rules = {"model.norm": "replicate", "model.layers.*.self_attn.q_norm": "replicate"}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(rules, indent=4))
    found = check(rules)

    def traced(request: RanksRequest, folder: Path) -> Sequence[RanksCaptured]:
        save_ranks(json.loads(json.dumps(request.to_json())), folder, lambda _: None)
        return load(folder)

    request = RanksRequest(
        QWEN, QWEN, TP, SMALL, batch=2, seq=4, tp_plan=rules, modes=("train",), load="made-up"
    )
    (tmp_path / "before").mkdir()
    before = traced(request, tmp_path / "before")
    file = plan, plan.read_text()
    asking = Asking(request, Statements(), Compared(), traced, file, before)
    (fixed,) = in_source.repaired(asking, found, ())
    assert fixed is not None
    assert fixed.place == "plan.json:3"
    assert fixed.diff.splitlines()[4:] == [
        '     "model.norm": "replicate",',
        '-    "model.layers.*.self_attn.q_norm": "replicate"',
        '+    "model.layers.*.self_attn.q_norm": "replicated_with_grad_allreduce"',
        " }",
        "\\ No newline at end of file",
    ]


def test_a_plan_that_is_made_anew_is_taken_back(tmp_path: Path) -> None:
    rewrite = Rewrite("X.tp_plan.json", 1, "plan", '{\n  "model.norm": "replicate"\n}\n')
    made = InSource(tmp_path / "tree", rewrite, None, {})
    made.root.mkdir()
    file = made.root / rewrite.file
    given = (made.diff, {rewrite.file: (None, rewrite.text)}, {}, made.root, tmp_path / "state")
    apply_texts(*given)
    assert file.read_text() == rewrite.text
    with pytest.raises(InputError):
        apply_texts(*given)
    undo(made.root, tmp_path / "state")
    assert not file.exists()


def test_a_plan_is_over_one_mesh_dim(check: Check) -> None:
    with pytest.raises(CaptureError, match="over one mesh dim, the mesh has 2"):
        check("auto", Mesh.of(dp=2, tp=2))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("m.py:Name",), "no model to check against"),
        (("m.py:Name", "--against", "m.py:Name", "--tp-plan", "auto"), "is for its classes"),
        ((QWEN, "--tp-plan", "absent.json"), "no plan can be read from absent.json"),
        ((QWEN, "--tp-plan", "bad.json"), "no plan can be read from bad.json"),
    ],
)
def test_what_cannot_be_used_is_one_error(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text("")
    Path("bad.json").write_text('{"model.norm": 1}')
    done = CliRunner().invoke(app, ["check", *arguments, "--mesh", "tp=2", "--json"])
    error = next(e for e in map(json.loads, done.output.splitlines()) if e["event"] == "error")
    assert said in error["message"]
    assert error["traceback_file"] == ""
