"""One process of a run: one device (0), or a rank (1, 2, ...) that compares itself with it.

It is copied beside the run, and imports nothing of shardproof: what runs is the owner's code, in a
process that nothing is patched in. What it is to do stands in `order.json`. Files of its folder are
how it meets the others:

    described-N.json   what the module of process N is: parameters, arguments
    given.json         for every rank, which piece of which tensor each of its tensors is
    outputs-N.json     what its forward returned first
    outputs.json       for every rank, which piece of which output each is
    one-M-S-C.pt       what one device computed, in mode M for the seed S and the call C
    rank-N.json        how a rank differs from it
    error-N.json       what ended the process
"""

# pyright: basic, reportMissingImports=false
# (PyTorch has no types for what is used here.)

import contextlib
import faulthandler
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from arguments import (
    argument_names,
    arguments,
    by_position,
    integers_of,
    leaves,
    nested,
    takes_any,
)
from logged_loss import logged_losses
from results import named_outputs, returned_losses, returned_names
from several_models import first_of, together
from stages import SCHEDULE, Stages
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NOISE = 2e-5
"""The least that a gradient is measured by, as a share of the largest one: where terms as large as
that cancel, float64 leaves some 2**-46 of them."""
GENERATORS = {
    "random": random.getstate,
    "numpy.random": lambda: tuple(np.random.get_state())[1:3],
    "torch": lambda: torch.get_rng_state(),
}
"""The generators that are seeded, with what tells that one was drawn from."""


GROUPS = ("outputs", "gradients", "inputs", "buffers", "updates")
"""What is compared of a call."""


class OverError(Exception):
    """The run ends here, and what was compared counts."""


def main(folder: Path, index: int, kind: Any = None) -> None:
    """Do the part of a process, a `Process` or a `kind` of it; what ends it is told in
    `error-N.json`."""
    faulthandler.register(signal.SIGUSR1)
    process = (kind or Process)(folder, index)
    try:
        process.run()
    except BaseException as problem:
        process.tell_error(problem)
        raise


class Process:
    """One device, or a rank."""

    def __init__(self, folder: Path, index: int) -> None:
        self.folder, self.index, self.rank = folder, index, index - 1
        self.order = json.loads((folder / "order.json").read_text())
        self.mesh: Any = None
        self.offered: dict[str, Any] = {}
        self.modules: dict[str, Any] = {}
        self.earlier: dict[str, Any] = {}
        self.stage = "build"
        self.rows: list[dict[str, Any]] = []
        self.drew: dict[str, dict[str, list[str]]] = {}
        self.number, self.mode = 0, {"train": False, "gradients": False}
        self.plain = False
        """Whether inputs need no gradient."""
        self.floats: set[str] = set()
        """Types of floats that it computes in."""
        self.retried = False
        """Whether inputs needed no gradient in some mode."""
        self.home: list[str] = []
        self.held: list[Any] = []
        """What a step is given beside the model."""

    # What is run.

    def run(self) -> None:
        warnings.simplefilter("ignore")
        if self.order["most"]:
            self.refuse_large()
        torch.set_num_threads(1)
        torch.set_default_dtype(getattr(torch, self.order["dtype"]))
        if self.index:
            self.join(dict(self.order["mesh"]), self.rank)
        elif self.order["alone"]:
            self.join(dict.fromkeys(dict(self.order["mesh"]), 1), 0)
        for number, mode in enumerate(self.order["modes"]):
            self.number, self.mode, self.plain = number, mode, False
            with contextlib.suppress(OverError):
                for seed in self.order["seeds"]:
                    self.seeded(seed)
                    self.enough()
        self.write(
            f"rank-{self.index}.json",
            {"rows": self.rows, "drew": self.drew, "floats": sorted(self.floats)}
            | {"plain": self.retried},
        )
        if dist.is_initialized():
            dist.barrier()  # a rank that ends takes its connections with it

    def refuse_large(self) -> None:
        """Count the parameters of one device, in a process that ends with that."""
        if self.index == 0 and (pid := os.fork()) == 0:
            count = 0
            with contextlib.suppress(BaseException), torch.device("meta"):
                model, _ = self.built(self.order["one"], 0)
                count = sum(p.numel() for p in model.parameters())
            self.write("counted.json", count)
            os._exit(0)
        if self.index == 0:
            os.waitpid(pid, 0)
        if self.awaited("counted.json") > self.order["most"]:
            raise NotImplementedError(f"more than {self.order['most']:,} parameters")

    def join(self, mesh: dict[str, int], rank: int) -> None:
        """Become a rank, as `torchrun` starts one, and say what a factory may take."""
        size = int(np.prod(list(mesh.values())))
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        os.environ.update({k: str(v) for k, v in variables.items()})
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        os.environ |= {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}
        meeting = f"file://{self.folder}/rendezvous-{size}"
        patience = timedelta(seconds=self.order["patience"])
        dist.init_process_group(
            "gloo", init_method=meeting, rank=rank, world_size=size, timeout=patience
        )
        made = init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh))
        self.mesh = made
        self.offered = {"rank": rank, "world_size": size, "mesh": made, "device_mesh": made}
        for name in mesh:
            self.offered[f"{name}_rank"] = made.get_local_rank(name)
            self.offered[f"{name}_size"] = mesh[name]
            self.offered[f"{name}_group"] = made.get_group(name)
        if len(mesh) == 1:
            self.offered |= {k: made.get_group() for k in ("group", "process_group")}

    def seeded(self, seed: int) -> None:
        """Build the module and call it, with weights, inputs and generators of one seed."""
        self.stage = "build"
        self.seed_generators(seed)
        self.forget()
        side = self.order["many" if self.index else "one"]
        model, loaded = self.built(side, seed)
        if not (self.folder / f"described-{self.index}.json").exists():
            self.describe(model)
        if isinstance(model, Stages) and not (self.mode["gradients"] or model.evaluates):
            raise OverError
        given = self.awaited("given.json") if self.index else None
        self.load(model, seed, given, loaded)
        model.train(self.mode["train"])
        if self.order["without_dropout"]:
            without_dropout(model)
        for call in range(self.order["calls"]):
            self.call(model, seed, call, given)

    def enough(self) -> None:
        """Of modes after the first, one seed is enough where one device draws nothing in it."""
        if self.index or not self.number or self.order["every"]:
            return
        if str(self.number) not in self.drew:
            self.write(f"over-{self.number}.json", {})
            raise OverError

    def built(self, side: dict[str, Any], seed: int) -> tuple[nn.Module, bool]:
        """The module of a side, and whether it was made of one that holds its values already."""
        if side["kind"] == "hf":
            model = self.of_library(side, seed)
            return in_dtype(model, self.order["dtype"]), "plan" in side and self.index > 0
        module = self.imported(side)
        factory = getattr(module, side["name"])
        offered, whole = dict(self.offered), None
        if side.get("model") and "model" in inspect.signature(factory).parameters:
            whole, _ = self.built(side["model"], seed)
            self.load_whole(whole, seed)
            offered["model"] = whole
        kwargs, _ = arguments(factory, side["config"], offered)
        model = factory(**kwargs)
        model = whole if model is None else model
        if self.order["step"] and isinstance(model, tuple):
            model, *self.held = model
            if isinstance(model, nn.Module):
                model = together(model, self.held, self.step_function())
        if isinstance(model, SCHEDULE):
            model = Stages(model)
        if not isinstance(model, nn.Module):
            raise NotImplementedError(f"{side['name']} gives a {type(model).__name__}, no module")
        return in_dtype(model, self.order["dtype"]), whole is not None

    def forget(self) -> None:
        """Have the owner's files imported anew: what they count starts again, as in a process. One
        that can be imported only once, as it names an op, stays as it is."""
        self.earlier |= self.modules
        self.modules.clear()
        for name, module in list(sys.modules.items()):
            if self.owned(getattr(module, "__dict__", {}).get("__file__") or ""):
                del sys.modules[name]

    def imported(self, side: dict[str, Any]) -> Any:
        """The owner's file as a module, a member of its package where it is in one; what lies in
        the folders of the side can be imported by it."""
        path = Path(side["file"])
        if side["file"] not in self.modules:
            folders = side["paths"] or [str(path.parent)]
            sys.path[:0] = [f for f in folders if f not in self.home]
            sys.path += [f for f in side["late"] if f not in self.home]
            self.home += [f for f in (*folders, *side["late"]) if f not in self.home]
            name = side["module"] or path.stem
            sys.argv = [str(path)]
            try:
                module = importlib.import_module(name) if side["module"] else loaded(name, path)
            except Exception:
                if side["file"] not in self.earlier:
                    raise
                module = sys.modules[name] = self.earlier[side["file"]]
            self.modules[side["file"]] = module
        return self.modules[side["file"]]

    def owned(self, file: str) -> bool:
        """Whether a file is the owner's."""
        below = any(file.startswith(f"{h}/") for h in self.home)
        foreign = "-packages" in file or any(file.startswith(f) for f in self.order["foreign"])
        return below and not foreign

    def of_library(self, side: dict[str, Any], seed: int) -> nn.Module:
        """A class of transformers; on a rank, split as its plan says."""
        import transformers

        kind = getattr(transformers, side["name"])
        config = kind.config_class(**side["config"])
        for key in [k for k in vars(config) if "drop" in k]:
            if isinstance(getattr(config, key), float):
                setattr(config, key, 0.0)
        if not self.index or "plan" not in side:
            return kind(config)
        from transformers.distributed.configuration_utils import DistributedConfig
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism
        from transformers.initialization import no_tie_weights

        with no_tie_weights():
            made = in_dtype(kind(config), self.order["dtype"])
        self.load_whole(made, seed)
        model: Any = made
        asked = DistributedConfig(tp_size=self.mesh.size(), tp_plan=side["plan"])
        apply_tensor_parallelism(model, self.mesh, model._resolve_parallel_plans(asked)[0])
        model.tie_weights(recompute_mapping=False)
        return model

    # Values: each follows from the seed and the name, in every process alike.

    def seed_generators(self, seed: int) -> None:
        """All three alike on all processes; the one that is `varied` by rank."""
        varied = self.order["varied"]
        apart = 1000 * self.index
        random.seed(seed + apart * (varied == "random"))
        np.random.seed(seed + apart * (varied == "numpy.random"))
        torch.manual_seed(seed + apart * (varied == "torch"))

    def drawn(
        self, seed: int, kind: str, name: str, shape: Any, exact: bool = False
    ) -> torch.Tensor:
        """Normal numbers, rounded otherwise where that is asked for and they need not be `exact`:
        what is chosen by them stays the same."""
        digest = hashlib.blake2b(f"{seed}|{kind}|{name}".encode(), digest_size=6).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
        value = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
        if self.order["nudge"] and not exact and not kind.startswith("cotangent"):
            sign = torch.randint(0, 2, tuple(shape), generator=generator) * 2 - 1
            value = value * (1 + self.order["nudge"] * sign)
        return value

    def parameter(self, seed: int, name: str, shape: Any, ones: bool) -> torch.Tensor:
        """Values that a wrong rank or a wrong sum cannot hide behind."""
        scale = 0.3 / max(shape[-1], 1) ** 0.5 if len(shape) > 1 else 0.1
        return ones + scale * self.drawn(seed, "parameter", name, shape)

    def filled(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Buffers of floats that something else than their constructor fills."""
        patterns = self.order["filled"]
        names = [n for n, _ in model.named_parameters()]
        own = [p for p in patterns if not any(fnmatchcase(n, p) for n in names)]
        return {
            name: b
            for name, b in dense_buffers(model).items()
            if b.is_floating_point()
            and (name in patterns or any(fnmatchcase(name, p) for p in own))
        }

    def buffer(self, seed: int, name: str, shape: Any) -> torch.Tensor:
        """Positive numbers: scales and variances are such."""
        return 0.5 + 0.3 * self.drawn(seed, "buffer", name, shape).abs()

    @torch.no_grad()
    def load_whole(self, model: nn.Module, seed: int) -> None:
        for name, p in model.named_parameters():
            if p.is_floating_point():
                p.copy_(self.parameter(seed, name, p.shape, holds_ones(p)))
        for name, b in self.filled(model).items():
            b.copy_(self.buffer(seed, name, b.shape))

    @torch.no_grad()
    def load(self, model: nn.Module, seed: int, given: Any, loaded: bool) -> None:
        """Each parameter holds its piece. A DTensor made of a whole that is loaded does."""
        if given is None:
            self.load_whole(model, seed)
            return
        if loaded and self.order["placed_by_code"]:
            return
        for name, p in model.named_parameters():
            line = given["parameters"][self.rank].get(name)
            if line is None or not p.is_floating_point():
                continue
            whole = self.parameter(seed, line["name"], line["shape"], line["ones"]).to(p.dtype)
            if isinstance(p, DTensor):
                if not loaded:
                    part = distribute_tensor(whole, p.device_mesh, p.placements)
                    p.to_local().copy_(part.to_local())
                continue
            p.copy_(piece(whole, line["piece"]))
        buffers = dense_buffers(model)
        for name, line in given["buffers"][self.rank].items():
            if line["filled"] and not isinstance(buffers[name], DTensor):
                whole = self.buffer(seed, line["name"], line["shape"]).to(buffers[name].dtype)
                buffers[name].copy_(piece(whole, line["piece"]))

    def inputs(self, seed: int, call: int, given: Any) -> dict[str, torch.Tensor]:
        """The arguments of a call; of the first, those that the owner's file gives."""
        out: dict[str, torch.Tensor] = {}
        for spec in self.awaited("inputs.json"):
            name, shape, kind = spec["name"], spec["shape"], spec["dtype"]
            example = self.folder.parent / f"example-{name}.pt"
            if not call and seed == self.order["seeds"][0] and example.exists():
                value = torch.load(example)
            elif kind == "bool":
                value = self.drawn(seed, f"input {call}", name, shape, exact=True) > 0
            elif kind.startswith(("i", "u")):
                value = self.drawn(seed, f"input {call}", name, shape, exact=True)
                value = _among(value.mul(1e6).long().abs(), spec)
            else:
                value = self.drawn(seed, f"input {call}", name, shape)
            value = value.to(as_dtype(kind, self.order["dtype"]))
            if given is not None:
                value = piece(value, given["inputs"][self.rank][name])
            out[name] = value.clone()
        return out

    # One call.

    def call(self, model: nn.Module, seed: int, call: int, given: Any) -> None:
        """Forward and backward; one device saves what came of it, a rank compares."""
        want = self.one_device(seed, call) if self.index else None
        at = {"mode": self.number, "seed": seed, "call": call}
        self.stage = "run"
        for p in () if self.order["step"] else model.parameters():
            p.grad = None
        self.seed_generators(seed + 100 + call)
        before = {name: state() for name, state in GENERATORS.items()}
        inputs = self.inputs(seed, call, given)
        watch = Watch(self.owned) if self.order["varied"] else contextlib.nullcontext()
        self.plain = want["plain"] if want is not None else self.plain
        types = Floats(self.floats) if self.order["floats"] else contextlib.nullcontext()
        try:
            with watch, types:
                found = self.stepped(model, inputs, seed, call, given)
        except Exception:
            if self.index or not (call or seed != self.order["seeds"][0]):
                raise
            self.write(f"over-{self.number}.json", {})  # the model does not take these values
            raise OverError from None
        for name, state in GENERATORS.items():
            if not same(before[name], state()):
                lines = self.drew.setdefault(str(self.number), {}).setdefault(name, [])
                lines += [x for x in getattr(watch, "lines", {}).get(name, []) if x not in lines]
        if want is None:
            self.save(f"one-{self.number}-{seed}-{call}.pt", found)
            if self.order["against"]:
                held = Path(self.order["against"]) / f"one-{self.number}-{seed}-{call}.pt"
                before = torch.load(held, weights_only=False)
                lines = self.awaited("outputs-0.json")
                self.rows += [{**r, **at} for r in apart(found, before, lines)]
            return
        self.compare(found, want, given, at)

    def one_device(self, seed: int, call: int) -> dict[str, Any]:
        path = self.folder / f"one-{self.number}-{seed}-{call}.pt"
        while not path.exists():
            if (self.folder / f"over-{self.number}.json").exists():
                raise OverError
            time.sleep(0.002)
        return torch.load(path, weights_only=False)

    def stepped(
        self, model: nn.Module, inputs: dict[str, Any], seed: int, call: int, given: Any
    ) -> dict[str, Any]:
        """A step; on one device with inputs that need no gradient where it fails with others, as
        code that sets `requires_grad` of them does."""
        if self.order["step"]:
            return self.trained(model, inputs, given)
        if self.index or self.plain or not self.mode["gradients"]:
            return self.step(model, inputs, seed, call, given)
        held = {n: b.detach().clone() for n, b in dense_buffers(model).items()}
        try:
            return self.step(model, inputs, seed, call, given)
        except RuntimeError as problem:
            with torch.no_grad():
                for name, buffer in dense_buffers(model).items():
                    buffer.copy_(held[name])
            for p in model.parameters():
                p.grad = None
            self.seed_generators(seed + 100 + call)
            self.plain = self.retried = True
            try:
                return self.step(model, self.inputs(seed, call, given), seed, call, given)
            except RuntimeError:
                self.plain = False
                raise problem from None

    def trained(self, model: nn.Module, inputs: dict[str, Any], given: Any) -> dict[str, Any]:
        """What the owner's step returns, and by how much it changes parameters."""
        held = {n: full(p).clone() for n, p in model.named_parameters()}
        function = self.step_function()
        renamed = given["arguments"] if given is not None else {}
        own: Any = model.schedule if isinstance(model, Stages) else first_of(model)
        named = {renamed.get(n, n): v for n, v in inputs.items()}
        result = function(own, *self.held, **nested(function, named))
        outputs, loss = named_outputs(result, returned_names(function))
        scalars = [n for n, t in outputs if t.ndim == 0 and t.is_floating_point()]
        run = returned_losses(function)
        self.told(outputs, {loss} if loss else logged_losses(scalars, run))
        found: dict[str, Any] = {group: {} for group in GROUPS} | {"plain": False, "changed": []}
        found["outputs"] = {number: value.detach() for number, (_, value) in enumerate(outputs)}
        found["updates"] = {n: full(p) - held[n] for n, p in model.named_parameters()}
        return found

    def step(
        self, model: nn.Module, inputs: dict[str, Any], seed: int, call: int, given: Any
    ) -> dict[str, Any]:
        """Outputs, gradients, and what buffers and parameters hold afterwards."""
        gradients = self.mode["gradients"]
        held = {n: b.detach().clone() for n, b in dense_buffers(model).items()}
        leaves: dict[str, torch.Tensor] = {}
        passed: dict[str, torch.Tensor] = {}
        for name, value in inputs.items():
            wants = value.is_floating_point() and name not in self.order["no_grad"]
            if gradients and wants and not self.plain and not isinstance(model, Stages):
                leaves[name] = value.requires_grad_()
            passed[name] = value.clone()
        renamed = given["arguments"] if given is not None else {}
        named = {renamed.get(n, n): v for n, v in passed.items()}
        places, keywords = by_position(type(model).forward, named)
        if isinstance(model, Stages):
            stages: Any = model
            stages.names([(r["name"], r["loss"]) for r in self.awaited("outputs-0.json")])
        with contextlib.nullcontext() if gradients else torch.no_grad():
            result = model(*places, **keywords)
        outputs, loss = named_outputs(result, returned_names(type(model).forward))
        if not outputs and not isinstance(model, Stages):
            raise NotImplementedError("forward returns no tensor")
        told = self.told(outputs, {loss} if loss else set())
        if gradients:
            self.backward(model, outputs, loss, told, seed, call)
        found: dict[str, Any] = {group: {} for group in GROUPS} | {"plain": self.plain}
        for number, (_, value) in enumerate(outputs):
            found["outputs"][number] = value.detach()
        for name, p in model.named_parameters() if gradients else ():
            if p.requires_grad or p.grad is not None:
                found["gradients"][name] = p.grad
        for name, leaf in leaves.items():
            found["inputs"][name] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        for name, buffer in dense_buffers(model).items():
            found["buffers"][name] = buffer.detach().clone()
        found["changed"] = [n for n, b in found["buffers"].items() if not same(b, held.get(n, b))]
        return found

    def told(self, outputs: Any, losses: set[str]) -> list[dict[str, Any]]:
        """Which outputs these are: one device says itself, a rank is told."""
        if self.index == 0:
            lines = [
                {
                    "name": name,
                    "loss": name in losses,
                    "shape": list(value.shape),
                    "piece": None,
                }
                for name, value in outputs
            ]
            if not (self.folder / "outputs-0.json").exists():
                self.write("outputs-0.json", lines)
            return lines
        own = self.folder / f"outputs-{self.index}.json"
        if not own.exists():
            lines = [
                {"name": n, "loss": n in losses, "shape": list(v.shape), "placed": placed(v)}
                for n, v in outputs
            ]
            self.write(own.name, lines)
        return [
            {**line, "piece": line["pieces"][self.rank]} for line in self.awaited("outputs.json")
        ]

    def backward(
        self, model: nn.Module, outputs: Any, loss: str | None, told: Any, seed: int, call: int
    ) -> None:
        """Of the loss, or else of every output with a random cotangent."""
        roots, cotangents = [], []
        for (name, value), line in zip(outputs, told, strict=bool(outputs)):
            if not (value.is_floating_point() and value.requires_grad):
                continue
            if loss is not None and name != loss:
                continue
            local = value.to_local() if isinstance(value, DTensor) else value
            if loss is not None:
                cotangent = torch.ones_like(local)
            else:
                whole = self.drawn(seed, f"cotangent {call}", line["name"], line["shape"])
                cotangent = piece(whole, line["piece"]).to(local.dtype)
                cotangent = cotangent * self.order["share"] if self.index else cotangent
            if loss is None and isinstance(value, DTensor):
                part = distribute_tensor(cotangent, value.device_mesh, value.placements)
                cotangent = part.to_local()
            roots.append(local)
            cotangents.append(cotangent)
        if roots:
            torch.autograd.backward(roots, cotangents)
        after = self.order["after_backward"]
        if after and self.index:
            with torch.no_grad():
                getattr(self.imported(self.order["many"]), after)(model)

    # What is compared.

    def compare(self, found: Any, want: Any, given: Any, at: dict[str, Any]) -> None:
        rows = []
        for number, line in enumerate(self.awaited("outputs.json")):
            got, whole = found["outputs"].get(number), want["outputs"][number]
            if got is not None and not line["skipped"]:
                rows += self.output(line, got, whole)
        lines = given["parameters"][self.rank]
        floor = NOISE * max(
            [
                g.abs().max().item()
                for g in want["gradients"].values()
                if g is not None and g.numel()
            ],
            default=0.0,
        )
        theirs = {line["name"]: name for name, line in lines.items()}
        for name, wanted in want["gradients"].items():
            own = theirs.get(name)
            if own is None:
                continue
            got = found["gradients"].get(own)
            line = lines[own]
            if got is None and wanted is None:
                continue
            whole = torch.zeros(line["shape"]) if wanted is None else wanted
            if isinstance(got, DTensor):
                rows.append(row("gradient", name, got.full_tensor(), whole, floor))
                continue
            part = piece(whole, line["piece"])
            got = torch.zeros_like(part) if got is None else got
            rows.append(row("gradient", name, got, part, floor))
        for name, wanted in want["updates"].items():
            own = theirs.get(name)
            got = None if own is None else found["updates"][own]
            if got is not None:
                whole = tuple(got.shape) == tuple(lines[own]["shape"])
                part = wanted if whole else piece(wanted, lines[own]["piece"])
                rows.append(row("update of parameter", name, got, part))
        for name, got in found["inputs"].items():
            if name in self.order["grads_of"]:
                part = piece(want["inputs"][name], given["inputs"][self.rank][name])
                got = got if got is None else got / self.order["share"]
                rows.append(row("gradient of input", name, got, part, floor))
        for name, got in found["buffers"].items():
            line = given["buffers"][self.rank].get(name)
            if line is not None and line["name"] in want["changed"]:
                whole = want["buffers"][line["name"]]
                got = got.full_tensor() if isinstance(got, DTensor) else got
                rows.append(row("buffer", line["name"], got, piece(whole, line["piece"])))
        self.rows += [{**r, **at} for r in rows]

    def output(self, line: dict[str, Any], got: torch.Tensor, want: torch.Tensor) -> Any:
        """How an output differs. A loss may be the mean of those of the ranks, or their sum."""
        kind = "loss" if line["loss"] else "output"
        got = got.full_tensor() if isinstance(got, DTensor) else got.clone()
        for name in line["sum"]:
            dist.all_reduce(got, group=self.mesh.get_group(name))
        part = piece(want, line["pieces"][self.rank])
        plain = row(kind, line["name"], got, part)
        if not line["loss"] or not line["over"]:
            yield plain
            return
        joined, count = got.clone(), 1
        for name in line["over"]:
            dist.all_reduce(joined, group=self.mesh.get_group(name))
            count *= self.mesh[name].size()
        if not line["summed"]:
            joined /= count
        other = row(kind, line["name"], joined, part)
        yield min(plain, other, key=lambda r: r["relative"])

    # What the others are told.

    def describe(self, model: nn.Module) -> None:
        if self.index == 0:
            self.write_inputs(model)
        self.write(
            f"described-{self.index}.json",
            {
                "class": type(model).__name__,
                "stages": isinstance(model, Stages),
                "inside": inside(model),
                "arguments": self.taken(model),
                "any": takes_any(type(model).forward),
                "ties": ties(model),
                "parameters": {
                    n: {"shape": list(p.shape), "placed": placed(p), "ones": holds_ones(p)}
                    for n, p in model.named_parameters()
                },
                "buffers": {
                    n: {"shape": list(b.shape), "placed": placed(b)}
                    for n, b in dense_buffers(model).items()
                },
                "filled": list(self.filled(model)),
            },
        )

    def taken(self, model: nn.Module) -> list[str]:
        """Names of the arguments that are inputs."""
        if not self.order["step"]:
            return argument_names(type(model).forward)
        return argument_names(self.step_function())[len(self.held) :]

    def step_function(self) -> Callable:
        """The training step of this process, one device or a rank."""
        module = self.imported(self.order["many" if self.index else "one"])
        return getattr(module, self.order["step" if self.index else "step_of_one"])

    def write_inputs(self, model: nn.Module) -> None:
        """What the arguments are like: as ordered, or as the examples in the owner's file are."""
        if (self.folder / "inputs.json").exists():
            return
        if self.order["inputs"] is not None:
            self.write("inputs.json", self.order["inputs"])
            return
        module = self.modules[self.order["one"]["file"]]
        torch.manual_seed(0)
        found = module.example_inputs(**self.order["sizes"])
        if isinstance(found, torch.Tensor):
            found = (found,)
        if isinstance(found, (tuple, list)):
            found = dict(zip(argument_names(type(model).forward), found, strict=False))
        lines = []
        for name, value in (leaf for item in found.items() for leaf in leaves(*item)):
            integral = not value.is_floating_point() and value.dtype is not torch.bool
            below, ignored = integers_of(value) if integral else (0, None)
            kind = "bool" if value.dtype is torch.bool else "i64" if integral else "f32"
            line = {"name": name, "shape": list(value.shape), "dtype": kind, "below": below}
            lines.append({**line, "ignored": ignored})
            torch.save(value, self.folder.parent / f"example-{name}.pt")
        self.write("inputs.json", lines)

    def awaited(self, name: str) -> Any:
        path = self.folder / name
        while not path.exists():
            time.sleep(0.002)
        found = json.loads(path.read_text())
        if found is None:
            raise OverError  # tensors that are not alike
        return found

    def write(self, name: str, value: Any) -> None:
        draft = self.folder / f"{name}.{self.index}.draft"
        draft.write_text(json.dumps(value))
        draft.replace(self.folder / name)

    def save(self, name: str, value: Any) -> None:
        draft = self.folder / f"{name}.draft"
        torch.save(value, draft)
        draft.replace(self.folder / name)

    def tell_error(self, problem: BaseException) -> None:
        frames = traceback.extract_tb(problem.__traceback__)
        mine = [f for f in frames if self.owned(f.filename)]
        at = mine[-1] if mine else None
        self.write(
            f"error-{self.index}.json",
            {
                "kind": type(problem).__name__,
                "message": str(problem).strip()[-2000:],
                "stage": self.stage,
                "mode": self.number,
                "file": at.filename if at else "",
                "line": at.lineno if at else 0,
                "text": (at.line or "") if at else "",
            },
        )


class Watch:
    """Notes the lines of the owner's at which a generator is drawn from: an observer of calls, as
    a profiler is."""

    def __init__(self, owned: Callable[[str], bool]) -> None:
        self.owned = owned
        self.lines: dict[str, list[str]] = {}
        self.states = {name: state() for name, state in GENERATORS.items()}

    def __enter__(self) -> "Watch":
        sys.setprofile(self.saw)
        return self

    def __exit__(self, *problem: Any) -> None:
        sys.setprofile(None)

    def saw(self, frame: Any, event: str, arg: Any) -> None:
        if event != "c_return":
            return
        for name, state in GENERATORS.items():
            now = state()
            if not same(now, self.states[name]):
                self.states[name] = now
                at = frame
                while at is not None and not self.owned(at.f_code.co_filename):
                    at = at.f_back
                if at is not None:
                    line = f"{Path(at.f_code.co_filename).name}:{at.f_lineno}"
                    held = self.lines.setdefault(name, [])
                    held += [line] if line not in held else []


class Floats(TorchDispatchMode):
    """Notes the types of floats that ops give."""

    def __init__(self, seen: set[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        found = [t.dtype for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.seen |= {str(kind).removeprefix("torch.") for kind in found if kind.is_floating_point}
        return out


def loaded(name: str, path: Path) -> Any:
    """A file as a module that is no package's."""
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


def piece(whole: torch.Tensor, line: Any) -> torch.Tensor:
    """The entries that a rank holds, by the reshaping and the index of its layout."""
    if line is None:
        return whole
    if "parts" in line:
        cut = [whole.narrow(line["dim"], p["start"], p["extent"]) for p in line["parts"]]
        made = [piece(t, p["piece"]) for t, p in zip(cut, line["parts"], strict=True)]
        return torch.cat(made, line["dim"])
    index = tuple(slice(None) if i is None else i for i in line["index"])
    return whole.reshape(line["sizes"])[index].reshape(line["shape"])


def row(kind: str, name: str, got: Any, want: Any, floor: float = 0.0) -> dict[str, Any]:
    """How two tensors differ, where that is most. Entries that are NaN in both are alike."""
    if tuple(got.shape) != tuple(want.shape):
        shapes = f"shape {list(got.shape)}, one device has {list(want.shape)}"
        return {"kind": kind, "name": name, "relative": float("inf"), "said": shapes}
    shape = tuple(got.shape)
    got, want = got.double().reshape(-1), want.double().reshape(-1)
    apart = (got - want).abs()
    apart[(got == want) | (got.isnan() & want.isnan())] = 0.0
    apart[apart.isnan()] = float("inf")
    finite = want[want.isfinite()].abs()
    if not apart.numel():
        return {"kind": kind, "name": name, "relative": 0.0, "finite": False}
    scale = max(finite.max().item() if finite.numel() else 0.0, floor)
    at = int(apart.argmax())
    worst = apart[at].item()
    return {
        "kind": kind,
        "name": name,
        "relative": worst / scale if scale else worst,
        "absolute": worst,
        "at": [int(i) for i in np.unravel_index(at, shape)],
        "got": got[at].item(),
        "want": want[at].item(),
        "finite": bool(finite.numel()),
    }


def apart(found: Any, before: Any, outputs: Any) -> Any:
    """How two results of one device differ."""
    for number, line in enumerate(outputs):
        kind = "loss" if line["loss"] else "output"
        yield row(kind, line["name"], found["outputs"][number], before["outputs"][number])
    kinds = {"gradients": "gradient", "inputs": "gradient of input", "buffers": "buffer"}
    kinds["updates"] = "update of parameter"
    for group, kind in kinds.items():
        for name, value in found[group].items():
            if value is not None and before[group].get(name) is not None:
                yield row(kind, name, value, before[group][name])


def full(t: torch.Tensor) -> torch.Tensor:
    """A parameter in full where it is a DTensor, else as the rank holds it."""
    return (t.full_tensor() if isinstance(t, DTensor) else t).detach()


def placed(t: Any) -> bool:
    """Whether a tensor says itself how it is placed."""
    return isinstance(t, DTensor)


def holds_ones(t: torch.Tensor) -> bool:
    if isinstance(t, DTensor):
        t = t.to_local()
    return t.ndim < 2 and t.numel() > 0 and bool((t == 1).all())


def inside(model: nn.Module) -> list[str]:
    """What stands before the names of the model's modules where a rank wraps them."""
    stages = model.named_children() if isinstance(model, Stages) else ()
    return [f"{name}." for name, _ in stages]


def ties(model: nn.Module) -> dict[str, str]:
    """Every name of a parameter, with its first."""
    first: dict[int, str] = {}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first.setdefault(id(p), name) for name, p in every}


def in_dtype(model: nn.Module, dtype: str) -> nn.Module:
    """The module with its floating tensors in one dtype, which most have from the start."""
    kind = getattr(torch, dtype)
    floats = [t for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
    return model if all(t.dtype == kind for t in floats) else model.to(kind)


def _among(numbers: torch.Tensor, spec: dict[str, Any]) -> torch.Tensor:
    """Integers of an input, from any large ones: one in four is `ignored`, where there is one."""
    below, ignored = spec["below"] or 2, spec.get("ignored")
    if ignored is None:
        return numbers % below
    return (numbers % below).masked_fill(numbers // below % 4 == 0, ignored)


def as_dtype(kind: str, floats: str) -> torch.dtype:
    names = {"i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}
    return names[kind] if kind in names else getattr(torch, floats)


def dense_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Its buffers but those that are sparse, which no program has."""
    return {n: b for n, b in model.named_buffers() if b.layout is torch.strided}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, DTensor):
        return torch.equal(a.to_local(), b.to_local())
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def without_dropout(model: nn.Module) -> None:
    """Dropout gives what it is given: modules by their `p`, or by rates that say so by name, their
    own or of a config, as of layers that are dropped; calls of functions by a patch."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        configs = [v for v in vars(module).values() if "onfig" in type(v).__name__]
        for holder in (module, *configs):
            held = vars(holder) if hasattr(holder, "__dict__") else {}
            for name in [k for k, v in held.items() if "drop" in k and isinstance(v, float)]:
                setattr(holder, name, 0.0)
    functional: Any = nn.functional
    attention = functional.scaled_dot_product_attention

    def unchanged(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return input

    def attend(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = list(args)
        if len(given) > 4:
            given[4] = 0.0
        kwargs = {k: v for k, v in kwargs.items() if k != "dropout_p"}
        return attention(*given, **kwargs)

    for name in ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d"):
        setattr(functional, name, unchanged)
    functional.dropout3d = unchanged
    torch.dropout = unchanged
    functional.scaled_dot_product_attention = attend
