"""One process of a run of a launcher: one device (0), or a rank (1, 2, ...).

It is copied beside the run like `rank.py`, and runs the launcher as it stands: steps, a checkpoint,
and a step after each way to load one. Files of its folder, besides those of `rank.py`:

    state-N.pt      loss, gradient norm, parameters and optimizer state of one device after N steps
    of-one/         the checkpoint of one device
    of-ranks/       that of the ranks
    saved.json      stands there when the ranks have written theirs
"""

# pyright: basic, reportMissingImports=false

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rank import NOISE, Process, full, main as do_part, row
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

SMALL = 1e-3
"""The least that a parameter is measured by, as a share of the largest entry of any."""
CLIP = 0.1
"""What gradients are clipped to: small, so that they are."""


def main(folder: Path, index: int) -> None:
    """Do the part of a process; what ends it is told in `error-N.json`."""
    do_part(folder, index, Trained)


class Trained(Process):
    """One device, or a rank, that trains."""

    def run(self) -> None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        torch.set_default_dtype(getattr(torch, self.order["dtype"]))
        if self.index:
            self.join(dict(self.order["mesh"]), self.rank)
        self.script = self.imported(self.order["script"])
        self.script.CLIP = CLIP
        steps = self.order["steps"]
        held = self.script.parallel(self.mesh) if self.index else self.script.one_device()
        self.stage = "run"
        if self.order["nudge"]:
            self.nudged(held)
            return
        self.train(held, range(steps))
        where = self.folder / ("of-ranks" if self.index else "of-one")
        self.script.save(where, *owned(held), steps)
        if self.index:
            dist.barrier()
            if self.index == 1:
                self.write("saved.json", True)
            self.go_on()
        else:
            self.train(held, [steps])
            self.awaited("saved.json")
            self.number = len(self.order["modes"]) - 1
            self.resume(self.script.one_device(), "of-ranks", True)
        self.write(f"rank-{self.index}.json", self.rows)
        if dist.is_initialized():
            dist.barrier()

    def nudged(self, held: Any) -> None:
        """Train from parameters that differ as by rounding."""
        for name, p in held[0].named_parameters():
            p.data = p.data * (
                1 + self.order["nudge"] * torch.sign(self.drawn(0, "", name, p.shape))
            )
        self.number = 1
        self.train(held, range(self.order["steps"] + 1))
        self.write(f"rank-{self.index}.json", self.rows)

    def go_on(self) -> None:
        """From the checkpoint of one device, and from that of the ranks on a mesh of one dim."""
        self.number = 1
        self.awaited_state(self.order["steps"] + 1)  # by then, one device has saved
        self.resume(self.script.parallel(self.mesh), "of-one", True)
        self.number = 2
        name = self.order["dp"] or "dp"
        flat = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=(name,))
        model = fully_shard(self.script.make_model(), mesh=flat)
        held = model, self.script.make_optimizer(model), flat
        self.resume(held, "of-ranks", self.order["divides"])

    def resume(self, held: Any, where: str, steps: bool) -> None:
        """Load a checkpoint, compare, and take one more step where that is possible."""
        at = self.script.load(self.folder / where, *owned(held))
        if at != self.order["steps"]:
            raise ValueError(f"the checkpoint was written after {at} steps")
        self.compare_state(held, at - 1, self.awaited_state(at))
        if steps:
            self.train(held, [at])

    def train(self, held: Any, steps: Any) -> None:
        script = self.script
        take = script.train_step if self.index else script.one_step
        for step in steps:
            loss, norm = take(*held, *script.batch_of(step))
            if self.index or self.number:
                want = self.awaited_state(step + 1)
                self.add(row("loss", "loss", loss.detach(), want["loss"]), step)
                self.add(row("gradient norm", "", full(norm), want["norm"]), step)
                self.compare_state(held, step, want)
            else:
                found = {kind: dict(items) for kind, items in kept(*owned(held))}
                self.save(f"state-{step + 1}.pt", {"loss": loss, "norm": norm, **found})

    def compare_state(self, held: Any, step: int, want: Any) -> None:
        for kind, items in kept(*owned(held)):
            found, whole = dict(items), want[kind]
            names = self.on_all_stages(held, found)
            if names != whole.keys():
                unlike = ", ".join(sorted(names ^ whole.keys())[:3])
                raise ValueError(f"{kind} that one side lacks: {unlike}")
            share = SMALL if kind == "parameter" else NOISE
            for name, value in found.items():
                like = [t for n, t in whole.items() if n.split(" ")[0] == name.split(" ")[0]]
                like = list(whole.values()) if kind == "parameter" else like
                most = max(t.abs().max().item() for t in like if t.numel())
                self.add(row(kind, name, value, whole[name], share * most), step)

    def on_all_stages(self, held: Any, found: dict[str, Any]) -> set[str]:
        """The names of what this rank has; where it has a stage, of what all have together."""
        if isinstance(held[0], torch.nn.Module):
            return set(found)
        each: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(each, list(found))
        return set().union(*each)

    def add(self, found: dict[str, Any], step: int) -> None:
        self.rows.append({**found, "mode": self.number, "seed": 0, "call": step})

    def awaited_state(self, steps: int) -> Any:
        path = Path(self.order["against"] or self.folder) / f"state-{steps}.pt"
        while not path.exists():
            time.sleep(0.002)
        return torch.load(path, weights_only=False)


def owned(held: Any) -> tuple[Any, Any]:
    """The model, or the stage that a schedule runs, and its optimizer."""
    return held[0] if isinstance(held[0], torch.nn.Module) else held[0].model, held[1]


def kept(model: Any, optimizer: Any) -> Iterator[tuple[str, Iterator[tuple[str, torch.Tensor]]]]:
    """Parameters, and what the optimizer keeps of each, `exp_avg of fc.weight`, in full."""
    named = list(model.named_parameters())
    yield "parameter", ((name, full(p).clone()) for name, p in named)
    yield (
        "optimizer state",
        (
            (f"{key} of {name}", full(value).clone())
            for name, p in named
            for key, value in optimizer.state[p].items()
            if isinstance(value, torch.Tensor)
        ),
    )
