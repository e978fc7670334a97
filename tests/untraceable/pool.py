"""Tries many targets in one process that imports PyTorch once, and forks for each of them.

`python pool.py FOLDER TARGET...` leaves in `FOLDER/N` what a worker leaves for the Nth target.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

FIRST = """
import torch
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return 2 * x
    @staticmethod
    def backward(ctx, g): return 2 * g
class Part(torch.nn.Module):
    def forward(self, x): return Twice.apply(x)
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(2, 2)
        self.part = Part()
    def forward(self, x): return torch.softmax(self.part(self.w(x)), -1)
def example_inputs(): return {"x": torch.randn(2, 2)}
"""
"""Tried before the forks: what PyTorch imports and makes on first use is there for all of them."""


def order(here: Path, target: str) -> None:
    """Write down what a worker is to do in a folder."""
    from shardproof.synthesis.frontends.torch.request import CaptureRequest

    here.mkdir()
    request = CaptureRequest(target).to_json()
    (here / "request.json").write_text(json.dumps({"task": "try", "request": request}))


def main() -> None:
    folder, targets = Path(sys.argv[1]), sys.argv[2:]
    import torch

    from shardproof.synthesis.frontends.torch import worker

    torch.set_num_threads(1)
    (folder / "first.py").write_text(FIRST)
    order(folder / "first", f"{folder / 'first.py'}:M")
    worker.run(folder / "first")
    gc.freeze()
    gc.disable()
    running = 0
    for number, target in enumerate(targets):
        here = folder / str(number)
        order(here, target)
        if running == 2:
            os.wait()
            running -= 1
        if os.fork() == 0:
            report: dict[str, object] = {}
            try:
                worker.run(here)
            except BaseException as problem:  # noqa: BLE001
                report["error"] = worker.explain(problem, "")
            (here / "report.json").write_text(json.dumps(report))
            os._exit(0)
        running += 1
    for _ in range(running):
        os.wait()


if __name__ == "__main__":
    main()
