"""The functions that programs import: light to import, right about right and wrong programs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardproof

EXAMPLES = "examples/check"


@pytest.fixture(autouse=True)
def at_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def test_importing_it_imports_nothing_heavy(root: Path) -> None:
    heavy = ["torch", "numpy", "z3", "pydantic", "rich", "typer"]
    heavy += [f"shardproof.{room}" for room in ("agent", "synthesis", "verifier")]
    code = f"import sys, shardproof; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_every_name_is_there_and_documented() -> None:
    assert set(shardproof.__all__) == set(shardproof.HOME)
    for name in shardproof.__all__:
        assert getattr(shardproof, name).__doc__ or name == "Verdict"


def test_programs_are_verified_and_repaired() -> None:
    files = ("examples/verify/one.txt", "examples/verify/{}.txt", "examples/verify/contract.txt")
    right, wrong = (
        shardproof.load_problem(*(f.format(name) for f in files)) for name in ("right", "wrong")
    )
    assert isinstance(shardproof.verify(right), shardproof.Proof)
    assert isinstance(shardproof.verify(wrong), shardproof.Counterexample)
    found = shardproof.repair(wrong)
    assert isinstance(found, shardproof.Repair)
    assert len(found.edits) == 1
    assert isinstance(shardproof.verify(found.problem), shardproof.Proof)
    assert isinstance(shardproof.repair(wrong, seconds=0.001), shardproof.Unknown)


@pytest.mark.parametrize(
    ("call", "note"),
    [
        (lambda: shardproof.check("a.py:A", "b.py:B", "tp=2", layouts=[]), "shardproof.check"),
        (lambda: shardproof.check("a.py:A", "b.py:B", [2]), "mesh_dim_names"),
        (lambda: shardproof.parallelize("a.py:A"), "--gpus 64"),
        (lambda: shardproof.parallelize("no.py:A", mesh="tp=2"), ""),
        (lambda: shardproof.load_problem("no.txt", "no.txt", "no.txt"), "no.txt"),
        (lambda: shardproof.parallelize(lambda x: x, mesh="tp=2"), "path/model.py:Name"),
    ],
)
def test_what_cannot_be_used_is_one_error(call: Callable[[], Any], note: str) -> None:
    with pytest.raises(shardproof.ShardproofError) as caught:
        call()
    told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert note in "\n".join(told)


@pytest.mark.torch
@pytest.mark.slow
def test_parallel_code_that_is_wrong_is_not_asserted_equal() -> None:
    pytest.importorskip("torch")
    wrong, model = f"{EXAMPLES}/wrong.py:WrongMLP", f"{EXAMPLES}/model.py:MLP"
    with pytest.raises(AssertionError, match=r"wrong\.py:\d+") as refuted:
        shardproof.assert_parallel_equal(wrong, model, {"tp": 2})
    assert "on rank tp=" in str(refuted.value)


UNDECIDED = shardproof.Unknown("two values are not known to be equal")


def test_what_is_not_decided_is_not_asserted(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardproof import api

    monkeypatch.setattr(api, "check", lambda *_, **__: UNDECIDED)
    with pytest.raises(AssertionError, match=r"not decided whether a\.py:A computes b\.py:B"):
        shardproof.assert_parallel_equal("a.py:A", "b.py:B", "tp=2")


@pytest.mark.torch
@pytest.mark.slow
def test_the_examples_of_the_page_run(root: Path) -> None:
    pytest.importorskip("torch")
    page = (root / "docs" / "api.md").read_text()
    space: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, space)
    space["test_parallel_mlp"]()
    assert "ColwiseParallel" in space["plan"].diff


@pytest.mark.torch
@pytest.mark.slow
def test_the_notebook_shows_a_plan(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(root / "examples")
    cells = json.loads((root / "examples" / "plan.ipynb").read_text())["cells"]
    space: dict[str, Any] = {}
    for cell in [c for c in cells if c["cell_type"] == "code"]:
        exec("".join(cell["source"]), space)
    last = ast.parse("".join(cells[1]["source"])).body[-1]
    assert isinstance(last, ast.Expr)
    shown = space["plan"]._repr_html_()
    assert shown.startswith("<iframe")
    assert "&lt;html" in shown


APPLY = """
import os, sys
import torch, torch.distributed as dist
import shardproof
from shardproof.planned import Plan
from pathlib import Path
sys.path.insert(0, "examples")
from mlp import MLP, example_inputs

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/sync", rank=rank, world_size=2)
torch.manual_seed(0)
model, inputs = MLP(), example_inputs()
want = model(**inputs)
plan = Plan("proved", "", (), (), Path(sys.argv[2]) / "out", Path.cwd())
try:
    plan.apply(MLP(), dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp")))
except ValueError as error:
    assert "is proved for the mesh" in str(error), error
else:
    raise SystemExit("another mesh was taken")
made = plan.apply(model, None)
assert made is model
torch.testing.assert_close(made(**inputs), want)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.gloo
@pytest.mark.slow
def test_a_plan_is_applied_on_ranks(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    plan = shardproof.parallelize(
        "examples/mlp.py:MLP", mesh={"tp": 2}, run=False, out=tmp_path / "out"
    )
    assert plan.proved
    with pytest.raises(shardproof.ShardproofError, match="not what was planned"):
        plan.apply(__import__("torch").nn.Linear(2, 2))
    command = [sys.executable, "-W", "ignore", "-c", APPLY]
    ranks = [
        subprocess.Popen([*command, str(r), str(tmp_path)], cwd=root, stderr=subprocess.PIPE)
        for r in range(2)
    ]
    ended = [(p.communicate()[1], p.returncode) for p in ranks]
    assert [code for _, code in ended] == [0, 0], ended
