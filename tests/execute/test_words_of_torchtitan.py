"""Plans in the words of torchtitan: what they leave unsaid, and that wrong twins are not proved."""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from shardproof.agent.pipeline.pipeline import kinds
from shardproof.synthesis.emit import EmitError, Patch, emit
from shardproof.synthesis.emit.patch import patch as make_patch
from shardproof.synthesis.execute.job import collect_facts
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof, Unknown
from tests.execute.test_words_of_transformers import Model

pytestmark = [pytest.mark.torch, pytest.mark.slow]

MODEL = Path("benchmarks/published/titan_models.py").resolve().read_text()
OTHERS = """

class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.output = nn.Embedding(64, 8), nn.Linear(8, 64)

    def forward(self, tokens):
        logits = self.output(self.embed(tokens))
        return logits, functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class OfTwo(WithLoss):
    def forward(self, tokens, others):
        return self.output(self.embed(tokens) + self.embed(others))
"""
STUB = Path(__file__).with_name("torchtitan.py.txt").read_text()
"""What a plan imports of torchtitan, where that is not installed: `# path` before each file."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the owner's."""
    return tmp_path_factory.mktemp("titan")


@pytest.fixture(autouse=True)
def titan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchtitan, or what stands for it, among what processes import."""
    monkeypatch.chdir(folder)
    if find_spec("torchtitan") is not None:
        return
    site = folder / "site"
    for text in STUB.split("# torchtitan/")[1:]:
        name, _, body = text.partition("\n")
        file = site / "torchtitan" / name.strip()
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(body)
    record = site / "torchtitan-0.dist-info" / "RECORD"
    record.parent.mkdir(exist_ok=True)
    record.write_text("torchtitan/__init__.py,,\n")
    given = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(site), given))))


def planned(folder: Path, mesh: Mesh, name: str = "TitanLlama", inputs: str = "tokens") -> Model:
    file = folder / "titan_llama_model.py"
    file.write_text(MODEL + OTHERS)
    given = tuple(InputSpec(n, (4, 8), "i64", 64) for n in inputs.split())
    request = CaptureRequest(f"{file}:{name}", inputs=given)
    captured = capture(request)
    program, named = captured.program, kinds(captured)
    kept = NO_CONSTRAINTS.in_dialect("torchtitan")
    asked = Asked(program, mesh, load("h100"), named, constraints=kept, patched=True)
    return Model(request, captured, collect_facts(request), synthesize(asked))


@pytest.fixture(scope="module")
def llama(folder: Path) -> Model:
    return planned(folder, Mesh.of(dp=2, tp=2))


def files(patch: Patch) -> dict[str, str]:
    return {Path(path).suffix: text for path, (_, text) in patch.files.items()}


def test_what_is_written_is_torchtitan_and_pytorch_alone(llama: Model) -> None:
    patch = emit(llama.facts, llama.made.plan)
    assert all(old is None for old, _ in patch.files.values())
    text = files(patch)[".py"]
    body = ast.parse(text)
    froms = {n.module or "" for n in ast.walk(body) if isinstance(n, ast.ImportFrom)}
    assert not any("shardproof" in name for name in froms)
    assert "def parallelize_titan_llama(" in text
    assert "block.attention.heads //= tp.size()" in text
    assert text.count("model.output.weight = model.embed.weight") == 2
    job = tomllib.loads(files(patch)[".toml"])
    assert job["model"]["name"] == "titan_llama"
    assert job["training"] == {
        "local_batch_size": 2,
        "seq_len": 8,
        "mixed_precision_param": "float32",
    }
    assert job["parallelism"]["data_parallel_shard_degree"] == 2
    assert job["parallelism"]["tensor_parallel_degree"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: replace(p, recompute="full"), "no words for recompute full"),
        (lambda p: replace(p, loss_parallel=True), "or the loss"),
        (
            lambda p: replace(p, params={**p.params, "norm.weight": {"dp": "R", "tp": "R"}}),
            r"norm\.weight: .*rows dp does not divide; --dialect pytorch",
        ),
        (
            lambda p: replace(
                p, modules=(replace(p.modules[-1], style="fused_column", output="S(-1)"),)
            ),
            r"layers\.\S+: a plan of torchtitan has no words for FusedColwiseParallel",
        ),
        (
            lambda p: replace(p, modules=(*p.modules[:-1], replace(p.modules[-1], shared=True))),
            "no words for SharedOutput; --dialect pytorch",
        ),
    ],
)
def test_what_torchtitan_has_no_words_for_is_named(
    llama: Model, change: Callable[[Plan], Plan], said: str
) -> None:
    with pytest.raises(EmitError, match=said):
        emit(llama.facts, change(llama.made.plan))


@pytest.mark.parametrize(("name", "inputs"), [("WithLoss", "tokens"), ("OfTwo", "tokens others")])
def test_a_model_that_the_trainer_cannot_call_is_refused(
    folder: Path, name: str, inputs: str
) -> None:
    model = planned(folder, Mesh.of(tp=2), name, inputs)
    with pytest.raises(EmitError, match="a plan of torchtitan has no words for a forward"):
        emit(model.facts, model.made.plan)


def test_a_name_that_the_file_has_too_is_refused(llama: Model) -> None:
    facts = replace(llama.facts, names=("Sizes", "TitanLlama"))
    with pytest.raises(EmitError, match="Sizes: the file of a plan of torchtitan has something"):
        emit(facts, llama.made.plan)


@pytest.mark.campaign
def test_a_plan_of_torchtitan_is_proved(llama: Model) -> None:
    assert isinstance(llama.judged(emit(llama.facts, llama.made.plan)), Proof)


DOWN = '"layers.*.mlp.down": RowwiseParallel'
WRONG = {
    "no all_reduce": (".py", f"{DOWN}()", f"{DOWN}(output_layouts=Partial())"),
    "rows of a whole norm": (
        ".py",
        '"norm": NoParallel()',
        '"norm": SequenceParallel(use_local_output=True)',
    ),
    "averaged": (".py", "if isinstance(module, FSDPModule):", "if False:"),
    "as many heads": (".py", "block.attention.heads //= tp.size()", "pass"),
    "a quarter of the heads": (".py", "heads //= tp.size()", "heads //= 2 * tp.size()"),
    "another model": (
        ".py",
        "model = TitanLlama(config=Config()",
        "model = TitanLlama(Config(heads=2)",
    ),
    "not what is registered": (
        ".py",
        "parallelize_fn=parallelize_titan_llama",
        "parallelize_fn=lambda model, dims, config: model",
    ),
    "another mesh": (".toml", "tensor_parallel_degree = 2", "tensor_parallel_degree = 1"),
}
NOT_READ = {"another mesh": "AssertionError"}
IMPORTED = "DTensor, Partial, Replicate, distribute_tensor"


@pytest.mark.campaign
@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_plan_of_torchtitan_is_not_proved(llama: Model, fault: str) -> None:
    right = emit(llama.facts, llama.made.plan)
    kind, before, after = WRONG[fault]
    changed: dict[str, tuple[None, str]] = {}
    for path, (_, text) in right.files.items():
        if path.endswith(kind):
            assert text.count(before) == 1, text
            text = text.replace(before, after)
            text = text.replace("DTensor, Replicate, distribute_tensor", IMPORTED)
            text = text.replace(
                "RowwiseParallel,\n", "RowwiseParallel,\n    SequenceParallel,\n", 1
            )
        changed[path] = (None, text)
    wrong = make_patch(changed, right.obligations, right.entry)
    found = llama.judged(wrong)
    match found:
        case Counterexample():
            assert fault not in NOT_READ
        case Unknown(reason=reason):
            assert NOT_READ[fault] in reason
        case _:
            pytest.fail(str(found))
