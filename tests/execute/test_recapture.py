"""The emitted code, captured again on each rank, runs the collectives that its styles stand for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.xdist_group("gloo"),
]

SCRIPT = """
import json, sys
from pathlib import Path
from synthesis.emit import emit
from synthesis.emit.patch import git_apply, write_old
from synthesis.execute.collect import collect
from synthesis.execute.job import Job
from synthesis.execute.recapture import capture_rank, differences
from synthesis.plan import from_json
from verifier.frontend.request import CaptureRequest

folder = Path(sys.argv[1])
request = CaptureRequest.from_json(json.loads((folder / "request.json").read_text()))
plan = from_json((folder / "plan.json").read_text())
patch = emit(collect(request), plan, folder)
tree = folder / "tree"
tree.mkdir()
write_old(patch, tree)
git_apply(patch, tree)
job = Job(request, plan, "float64", next(iter(patch.files)), patch.function)
graphs = [capture_rank(job, tree, rank) for rank in range(plan.tp_size)]
print(json.dumps({
    "collectives": [g.collectives() for g in graphs],
    "differences": differences(graphs[0], graphs[1]),
    "placements": graphs[0].placements,
}))
"""


def test_block_runs_one_reduction_forward_and_one_backward(tmp_path: Path, root: Path) -> None:
    import importlib.util

    from synthesis.plan import to_json
    from verifier.frontend.request import CaptureRequest, InputSpec

    spec = importlib.util.spec_from_file_location("emit_models", root / "tests/emit/models.py")
    assert spec
    assert spec.loader
    models = importlib.util.module_from_spec(spec)
    sys.modules["emit_models"] = models
    spec.loader.exec_module(models)
    path = tmp_path / "block.py"
    path.write_text(models.SOURCE)
    request = CaptureRequest(
        f"{path}:Attention", {"n": 8, "heads": 4}, inputs=(InputSpec("x", (4, 4, 8)),)
    )
    (tmp_path / "request.json").write_text(json.dumps(request.to_json()))
    (tmp_path / "plan.json").write_text(to_json(models.plan(str(path))))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    # forward: the row layer; backward: the bias of qkv, kept whole (x itself needs no gradient)
    assert found["collectives"] == [{"all_reduce": 2}, {"all_reduce": 2}]
    assert all("select" in a for a, _ in found["differences"])
    assert found["placements"]["qkv.weight"] == [0, 3]  # three parts along dim 0
