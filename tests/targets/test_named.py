"""Models of libraries by name, and what is asked where nothing says what they are given."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.named import NAMED, Library
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    InputSpec,
    ask_for_inputs,
    is_library,
    split_target,
)
from tests.commands import COMMAND, ROOT, environment

TIMM = """from torch import nn

__version__ = "0"


def list_models():
    return ["two_layers"]


class Two(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.default_cfg = {"input_size": (3, 4, 4)}
        self.up, self.down = nn.Linear(48, width), nn.Linear(width, 8)

    def forward(self, x):
        return self.down(self.up(x.flatten(1)).relu())


def create_model(name, **config):
    return Two(**config)
"""
"""A library that is asked as timm is."""
NO_INPUTS = """from torch import nn


class Net(nn.Module):
    def forward(self, tokens, mask=None):
        return tokens
"""


def test_a_target_names_a_library_or_a_file() -> None:
    assert split_target("timm:vit_base.augreg_in1k") == ("timm", "vit_base.augreg_in1k")
    assert is_library("hf:LlamaForCausalLM")
    assert is_library("diffusers:UNet2DModel")
    assert not is_library("model.py:Net")


def test_a_library_is_called_as_its_users_call_it() -> None:
    assert NAMED["timm"].call("a", "C") == 'timm.create_model("a", **C)'
    assert NAMED["torchvision"].call("a", "C") == 'torchvision.models.get_model("a", **C)'
    assert NAMED["diffusers"].call("UNet2DModel", "C") == "diffusers.UNet2DModel(**C)"


def test_a_library_that_is_not_installed_is_named() -> None:
    with pytest.raises(CaptureError, match=r"not_there is not installed\n  try: pip"):
        Library("not_there", "create").build("a", {})


def test_inputs_are_asked_for_before_anything_slow(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NO_INPUTS)
    request = CaptureRequest(f"{tmp_path}/net.py:Net")
    with pytest.raises(CaptureError, match=r"takes tokens\n.*\n.*--input tokens=f32\[4,16\]; or"):
        ask_for_inputs(request)
    ask_for_inputs(CaptureRequest(request.target, inputs=(InputSpec("tokens", (4,)),)))
    (tmp_path / "net.py").write_text(f"from inputs import example_inputs\n{NO_INPUTS}")
    ask_for_inputs(request)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.xdist_group("gloo")
def test_a_model_of_a_library_is_split_proved_and_run(tmp_path: Path) -> None:
    (tmp_path / "libraries" / "timm").mkdir(parents=True)
    (tmp_path / "libraries" / "timm" / "__init__.py").write_text(TIMM)
    words = ("--config", "width=64", "--mesh", "tp=2", "--out", "out", "--run")
    env = environment(PYTHONPATH=f"{ROOT}:{tmp_path}/libraries")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        line = [*COMMAND, *words]
        return subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True)

    done = run("parallelize", "timm:two_layers", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    diff = (tmp_path / "out" / "patch.diff").read_text()
    assert '+    return timm.create_model("two_layers", **{**CONFIG, **changes})' in diff
    assert "+    x = torch.randn(4, 3, 4, 4, device=device)" in diff
    assert "RowwiseParallel" in diff
    other = run("capture", "timm:two_layer")
    assert other.returncode == 2
    assert "timm 0 has no model two_layer" in other.stdout + other.stderr
    assert "did you mean two_layers?" in other.stdout + other.stderr
