"""Training steps that run a pipeline's schedule, with twins that are wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh

pytestmark = pytest.mark.torch
FOLDER = Path(__file__).parents[2] / "examples" / "steps"
Make = Callable[..., Any]


@pytest.fixture
def made(case: Make, tmp_path: Path) -> Make:
    for name in ("deep.py", "stages.py"):
        shutil.copy(FOLDER / name, tmp_path)

    def make(**mesh: int) -> Any:
        rows = ["x=S(0)@dp", "y=S(0)@dp"] if "dp" in mesh else []
        return case(
            mesh=Mesh.of(**mesh),
            target="stages.py:staged",
            against="deep.py:adamw",
            step="train_step",
            inputs=["x=f32[8,4]", "y=f32[8,4]"],
            input_layouts=rows,
        )

    return make


MESHES = ({"pp": 2}, {"pp": 2, "dp": 2}, {"pp": 2, "dp": 2, "tp": 2})


@pytest.mark.parametrize("mesh", MESHES, ids=" and ".join)
def test_a_step_in_stages_is_proved(made: Make, mesh: dict[str, int]) -> None:
    found = made(**mesh).proved()
    outputs = {o.path for o in found.question.sequential.outputs}
    assert {"state:layers.0.weight", "state:layers.2.bias.exp_avg_sq"} <= outputs


WRONG = {
    "norm of a stage": ("    dist.all_reduce(total, group=stage.group)\n", ""),
    "tied weight counts twice": (' if name != "layers.3.weight"', ""),
    "tied gradients stay apart": ("    add_up_tied(stage)\n", ""),
    "tied gradients added after clipping": (
        "    add_up_tied(stage)\n    clip(stage, 0.1)\n",
        "    clip(stage, 0.1)\n    add_up_tied(stage)\n",
    ),
    "micro-batches are not averaged": ("F.mse_loss)\n", "F.mse_loss, scale_grads=False)\n"),
    "loss of the last micro-batch": ("torch.stack(losses).mean()", "losses[-1]"),
    "another rate by stage": ("lr=1e-2", "lr=1e-2 * (rank + 1)"),
    "stages in another order": (
        "Layers(rank * each, (rank + 1) * each)",
        "Layers(2 - 2 * rank, 4 - 2 * rank)",
    ),
    "tied gradients added twice": (
        "    add_up_tied(stage)\n    clip",
        "    add_up_tied(stage)\n    add_up_tied(stage)\n    clip",
    ),
    "targets of another micro-batch": (
        '"target": y,',
        '"target": torch.cat(y.chunk(2)[::-1]),',
    ),
    "no reduction over dp": ("fully_shard(part, mesh=mesh[\"dp\"])", "pass"),
    "norm of a shard over tp": ("[p.grad for", "[local(p.grad) for"),
    "a sum over dp": (
        "fully_shard(part, mesh=mesh[\"dp\"])",
        "fully_shard(part, mesh=mesh[\"dp\"]).set_gradient_divide_factor(1.0)",
    ),
}  # fmt: skip
OVER = {
    "no reduction over dp": {"dp": 2},
    "a sum over dp": {"dp": 2},
    "norm of a shard over tp": {"tp": 2},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_in_stages_is_refuted(made: Make, name: str) -> None:
    wrong = made(pp=2, **OVER.get(name, {}))
    if name == "stages in another order":
        wrong.edit(
            'names = {0: "0", stage.num_stages - 1: "3"}', 'names = {0: "3", 1: "0"}', "stages.py"
        )
    wrong.edit(*WRONG[name], "stages.py").refuted()


def test_a_stage_that_changes_a_buffer_is_refused(made: Make) -> None:
    step = made(pp=2)
    text = (step.folder / "deep.py").read_text()
    text = text.replace(
        "def forward(self, x):\n", "def forward(self, x):\n        self.calls += 1\n"
    )
    kept = '        self.register_buffer("calls", torch.zeros(()))\n'
    (step.folder / "deep.py").write_text(
        text.replace("super().__init__()\n", f"super().__init__()\n{kept}")
    )
    with pytest.raises(CaptureError, match=r"a stage changes its buffer stage0\.calls"):
        step.check()


def test_a_step_that_gives_no_loss_is_refused(made: Make) -> None:
    step = made(pp=2)
    step.edit("    return torch.stack(losses).mean() if losses else None\n", "", "stages.py")
    with pytest.raises(CaptureError, match="returns 0 tensors, the model 1"):
        step.check()


def test_a_step_in_stages_runs_on_processes(made: Make) -> None:
    words = ["stages.py:staged", "--against", "deep.py:adamw", "--step", "train_step"]
    words += ["--mesh", "pp=2", "--input", "x=f32[8,4]", "--input", "y=f32[8,4]"]
    command = [sys.executable, "-m", "shardproof", "check", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=made(pp=2).folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 processes: agrees" in done.stderr
