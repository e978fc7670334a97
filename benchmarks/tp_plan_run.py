"""`python -m benchmarks.tp_plan_run CLASS SIZE`: a class of transformers, loaded by its own
`from_pretrained` and run on SIZE processes (gloo, float64), against one process.

What differs is printed: weights after the load, the loss, gradients. It is the truth that
`benchmarks.tp_plans` is held against, and does not use any part of shardproof that decides.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from benchmarks.tp_plans import fields
from shardproof.synthesis.frontends.torch.ranks.loading import on_the_cpu
from shardproof.synthesis.frontends.torch.target import library

TOLERANCE = 1e-7


class Double(TorchFunctionMode):
    """Casts to float32 are casts to float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def wide(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(wide, args), **{k: wide(v) for k, v in (kwargs or {}).items()})


def step(model: Any, training: bool) -> dict[str, torch.Tensor]:
    """Weights, the loss and gradients, whole."""
    model.train(training)
    for p in model.parameters():
        p.grad = None
    ids = torch.arange(16).reshape(2, 8) % 90
    with Double():
        out = model(input_ids=ids, labels=ids.flip(1))
        out.loss.backward()
    found = {"loss": out.loss.detach(), "logits": out.logits.detach()}
    for name, p in model.named_parameters():
        found[f"weight {name}"] = p.detach()
        found[f"gradient {name}"] = torch.zeros_like(p) if p.grad is None else p.grad
    return {n: t.full_tensor() if hasattr(t, "full_tensor") else t for n, t in found.items()}


def rank(name: str, folder: Path, at: int, size: int, training: bool, plan: Any) -> None:
    """One process: rank 0 leaves what it found, or the error."""
    variables = {"RANK": at, "LOCAL_RANK": at, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ.update({k: str(v) for k, v in variables.items()})
    try:
        store = dist.FileStore(str(folder / "store"), size)
        dist.init_process_group("gloo", rank=at, world_size=size, store=store)
        from transformers.distributed.configuration_utils import DistributedConfig

        found = library(name, fields(name, size), {})
        asked = DistributedConfig(tp_size=size, tp_plan=plan)
        with on_the_cpu(found.cls):
            model = found.cls.from_pretrained(
                folder, config=found.hf_config, dtype=torch.float64, distributed_config=asked
            )
        got = step(model, training)
        if at == 0:
            torch.save(got, folder / "got.pt")
    except BaseException as problem:  # noqa: BLE001
        said = f"{type(problem).__name__}: {problem}".strip().split("\n")[0]
        (folder / f"error-{at}").write_text(said)
    os._exit(0)


def run(name: str, size: int, training: bool = True, plan: Any = "auto") -> list[str]:
    """What differs, in lines."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found = library(name, fields(name, size), {})
        one = found.cls(found.hf_config).double()
        with torch.no_grad():
            for p in one.parameters():
                p.add_(torch.randn_like(p) * 0.3)
        one.save_pretrained(folder)
        one = found.cls.from_pretrained(folder, config=found.hf_config, dtype=torch.float64)
        want = step(one, training)
        pids = []
        for at in range(size):
            pid = os.fork()
            if not pid:
                rank(name, folder, at, size, training, plan)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        errors = sorted(folder.glob("error-*"))
        if errors:
            return [f"{e.name.replace('error-', 'rank ')}: {e.read_text()}" for e in errors[:1]]
        got = torch.load(folder / "got.pt")
    out: list[str] = []
    for key, t in want.items():
        off = float((got[key] - t).abs().max() / t.abs().max().clamp(min=1e-12))
        if off > TOLERANCE:
            out.append(f"{key}: {off:.2g} of the largest entry off")
    return out


def main() -> int:
    """1 if something differs."""
    name, size, *more = sys.argv[1:]
    training, plan = "eval" not in more, [m for m in more if m.startswith("{")]
    lines = run(name, int(size), training, json.loads(plan[0]) if plan else "auto")
    print("\n".join(lines) or "nothing differs")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
