"""Models and directories that cannot be used: one error, exit code 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_refused_options import assert_refused
from tests.commands import Command

pytestmark = pytest.mark.torch

NET = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.up = nn.Linear(width, 12)
        self.down = nn.Linear(12, width)
    def forward(self, x):
        BODY
        return self.down(torch.relu(self.up(x))).pow(2).mean()

class Other:
    pass

def example_inputs():
    return {"x": torch.zeros(4, 8)}
"""


def write(folder: Path, body: str = "pass") -> str:
    path = folder / "net.py"
    path.write_text(NET.replace("BODY", body))
    return str(path)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("missing.py:Net", "not found"),
        ("net.py", "names no model"),
        ("net.txt:Net", "not a Python file"),
        (":Net", "names no model"),
    ],
)
def test_target(here: Command, tmp_path: Path, target: str, says: str) -> None:
    write(tmp_path)
    (tmp_path / "net.txt").write_text("")
    place = target if target.startswith(":") else str(tmp_path / target)
    assert_refused(here, tmp_path, ["parallelize", place, "--mesh", "tp=2", "--out", "o"], says)


def refused(here: Command, tmp_path: Path, target: str, says: str, mesh: str, *more: str) -> None:
    """As `assert_refused`, once: capturing takes seconds."""
    before = sorted(tmp_path.rglob("*"))
    done = here("parallelize", target, "--mesh", mesh, "--out", "o", "--json", *more)
    assert done.code == 2, done.out + done.err
    (error,) = [e for e in done.events if e["event"] == "error"]
    assert says in error["message"] + error["got"] + error["hint"]
    assert done.last["exit_code"] == 2
    assert done.last["verdict"] == "unknown"
    assert "Traceback" not in done.err
    assert sorted(tmp_path.rglob("*")) == before


def test_class_not_found(here: Command, tmp_path: Path) -> None:
    refused(here, tmp_path, write(tmp_path) + ":Nett", "no class or function Nett", "tp=2")


def test_class_that_is_no_module(here: Command, tmp_path: Path) -> None:
    refused(here, tmp_path, write(tmp_path) + ":Other", "no nn.Module", "tp=2")


def test_forward_that_raises_is_located(here: Command, tmp_path: Path) -> None:
    target = write(tmp_path, 'raise ValueError("no luck")') + ":Net"
    done = here("parallelize", target, "--mesh", "tp=2", "--out", "o", "--json")
    assert done.code == 2
    (error,) = [e for e in done.events if e["event"] == "error"]
    assert "no luck" in error["message"]
    assert "net.py:10" in error["where"]


def test_unsupported_op_is_named_with_its_line(here: Command, tmp_path: Path) -> None:
    target = write(tmp_path, "x = torch.linalg.matrix_exp(x[:4, :4]).repeat(1, 2)") + ":Net"
    done = here("parallelize", target, "--mesh", "tp=2", "--out", "o", "--json")
    assert done.code == 2
    (error,) = [e for e in done.events if e["event"] == "error"]
    assert "matrix_exp" in error["message"]
    assert "net.py:10" in error["where"]
    assert "CONTRIBUTING.md" in error["hint"]


def test_batch_that_the_mesh_does_not_divide(here: Command, tmp_path: Path) -> None:
    refused(here, tmp_path, write(tmp_path) + ":Net", "does not divide by dp=3", "dp=3")


def test_mesh_dim_without_a_strategy(here: Command, tmp_path: Path) -> None:
    arguments = ["parallelize", write(tmp_path) + ":Net", "--mesh", "pp=2", "--out", "o"]
    assert_refused(here, tmp_path, arguments, "pp=2")


def test_unknown_field_of_a_config(here: Command, tmp_path: Path) -> None:
    target = write(tmp_path) + ":Net"
    refused(here, tmp_path, target, "takes no argument 'depth'", "tp=2", "--config", "depth=2")


def test_out_directory_that_is_not_empty(here: Command, tmp_path: Path) -> None:
    out = tmp_path / "taken"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    arguments = ["parallelize", write(tmp_path) + ":Net", "--mesh", "tp=2", "--out", str(out)]
    assert_refused(here, tmp_path, arguments, "not empty")
    assert_refused(here, tmp_path, [*arguments, "--force"], "did not write")
    assert (out / "notes.txt").read_text() == "mine"


def test_out_directory_that_is_a_file(here: Command, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    target = write(tmp_path) + ":Net"
    arguments = ["parallelize", target, "--mesh", "tp=2", "--out", str(tmp_path / "taken")]
    assert_refused(here, tmp_path, arguments, "is a file")


def test_cluster_description_that_does_not_exist(here: Command, tmp_path: Path) -> None:
    arguments = ["parallelize", write(tmp_path) + ":Net", "--mesh", "tp=2", "--out", "o"]
    assert_refused(here, tmp_path, [*arguments, "--hardware", "tpu"], "h100")
