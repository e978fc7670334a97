"""Judges patches that split the layers `up` and `down`, and the batch, and do nothing else.

Run as `python naive.py CASES`, JSON: a list of {file, obligations, loss, more}; `more` are further
lines of `parallelize`. Prints the list of truths.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.patches.models import of_file
from benchmarks.patches.truth import judge
from shardproof.agent.actions.words import read_mesh
from shardproof.synthesis.emit.patch import patch
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.planner.plan import Plan

HEAD = """

def parallelize(model, mesh):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

"""
TENSOR = """    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
"""
DATA = """    fully_shard(model, mesh=mesh["dp"])
"""


def judged(case: dict[str, Any]) -> dict[str, Any]:
    """The truth about one patch."""
    model = of_file(Path(case["file"]))
    mesh = read_mesh(model.meshes[0])
    tp, dp = ("tp" if "tp" in mesh.names else None, "dp" if "dp" in mesh.names else None)
    new = model.source + HEAD + (TENSOR if tp else "") + (DATA if dp else "")
    new += "".join(f"    {line}\n" for line in (*case.get("more", ()), "return model"))
    obligations = tuple(case.get("obligations", ()))
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.py"
        file.write_text(model.source)
        made = patch({"model.py": (model.source, new)}, obligations, "")
        request = CaptureRequest(f"{file}:M")
        return asdict(judge(request, made, Plan(mesh, tp, dp), case.get("loss", "mean")))


if __name__ == "__main__":
    print(json.dumps([judged(case) for case in json.loads(sys.argv[1])]))
