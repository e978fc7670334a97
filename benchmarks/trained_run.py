"""A training script: the model of a file, with or without the function of its patch.

`benchmarks.trained` puts it beside the file, and starts it with `python` for one process (`one`,
later `back`) or `torchrun` for the ranks (`ranks`). It imports nothing of shardproof: what splits
the model is what the patched file calls.
"""

# pyright: basic

import importlib
import inspect
import json
import math
import os
import random
import sys
from itertools import product
from pathlib import Path
from typing import get_type_hints

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

STEPS, RATE = 3, 1e-3
NUDGE = 2.0**-51
"""A rounding of weights, to see what rounding does: AdamW makes steps of gradients that are 0."""
TO = Path(os.environ.get("TRAINED", "."))
FULL = StateDictOptions(full_state_dict=True)


class Script:
    """What all of the processes do alike."""

    def __init__(self):
        in_float64()
        self.order = json.loads((TO / "order.json").read_text())
        sys.path.insert(0, self.order["folder"])
        self.file = importlib.import_module(self.order["module"])
        self.sizes = self.order["mesh"]
        self.places = list(product(*map(range, self.sizes.values())))

    def build(self, seed):
        """The owner's model, in float64, without dropout."""
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        torch.use_deterministic_algorithms(True)  # memory that nobody wrote is NaN
        if self.order["class"]:
            cls = getattr(self.file, self.order["class"])
            params = inspect.signature(cls).parameters.values()
            kinds = get_type_hints(cls.__init__)
            needed = [p for p in params if p.default is p.empty and p.kind.name[:4] != "VAR_"]
            model = cls(*(kinds[p.name]() for p in needed))
        else:
            model = self.file.build_model(**self.order["build"])
        torch.use_deterministic_algorithms(False)
        for param in model.parameters():
            if param.isnan().any():
                torch.nn.init.normal_(param, std=0.02)
        for module in model.modules():
            rates = {n: r for n, r in vars(module).items() if isinstance(r, float)}
            for name in rates:
                if "drop" in name or isinstance(module, torch.nn.modules.dropout._DropoutNd):
                    setattr(module, name, 0.0)
        held = dict(model.named_buffers())  # what is written there is no result
        self.outputs = [o for o in self.order["outputs"] if o["path"] not in held]
        return model.double()

    def inputs(self, model, rank=None):
        """Of all, or the part of a rank."""
        torch.manual_seed(0)
        given, told = {}, self.order["inputs"]
        if self.order["class"] and not self.order["below"]:
            told = {}  # the rest is drawn by forward
            given = self.file.example_inputs()
            given = (given,) if isinstance(given, torch.Tensor) else given
            if not isinstance(given, dict):
                given = dict(zip(inspect.signature(model.forward).parameters, given, strict=False))
        for name, (kind, shape) in told.items():
            below = self.order["below"].get(name) or getattr(
                getattr(model, "config", None), "vocab_size", 2
            )
            if name not in given and kind in ("i64", "i32", "u8", "bool"):
                given[name] = torch.randint(0, below, shape)
                given[name] = given[name].bool() if kind == "bool" else given[name]
            elif name not in given:
                given[name] = torch.randn(shape)
        given = {n: x.double() if x.is_floating_point() else x for n, x in given.items()}
        laid = self.order["laid"]
        return {n: self.piece(x, laid[n], rank) if n in laid else x for n, x in given.items()}

    def piece(self, whole, dims, rank):
        """What a rank has of a tensor; all of it where that is None."""
        if rank is None:
            return whole
        at = dict(zip(self.sizes, self.places[rank], strict=True))
        atoms = [atom for dim in dims for atom in dim]
        local = [math.prod(n for n, name in dim if name is None) for dim in dims]
        index = tuple(slice(None) if name is None else at[name] for _, name in atoms)
        return whole.reshape([n for n, _ in atoms])[index].reshape(local)

    def leaves(self, model, given, rank=None):
        """The tensors that the model returns, in the order of the plan's outputs."""
        out = [x for x in tree_leaves(model(**given)) if isinstance(x, torch.Tensor)]
        for x, told in zip(out, self.outputs, strict=True):
            whole = rank is None
            local = [math.prod(n for n, name in dim if whole or not name) for dim in told["dims"]]
            if list(x.shape) != local:
                raise ValueError(f"an output is {list(x.shape)}, and {local} in the plan")
        return out

    def loss(self, out, rank=None):
        """The model's own loss, or a mean of its outputs with random factors: what a rank
        computes, and what it adds to that of all."""
        told = self.outputs
        own = [x for x, t in zip(out, told, strict=True) if t["role"] == "loss"]
        if own:
            return own[0], own[0].detach()
        torch.manual_seed(7)
        here, total = 0.0, 0.0
        for x, t in zip(out, told, strict=True):
            factors = torch.randn([math.prod(n for n, _ in dim) for dim in t["dims"]])
            if not x.is_floating_point():
                continue
            part = (x * self.piece(factors, t["dims"], rank)).sum() / factors.numel()
            if rank is not None and self.order["loss"] == "mean":
                part = part * self.sizes.get("dp", 1)
            split = rank is not None and any(name == "tp" for dim in t["dims"] for _, name in dim)
            here, total = here + part, total + part.detach() * (self.sizes["tp"] if split else 1)
        return here, total

    def train(self, model, mode, rank=None, limits=()):
        """Losses of some steps, and the norms of gradients, which are clipped, or why there are
        none. The limits of norms are of one process, less at each step."""
        given, losses, norms = self.inputs(model, rank), [], []
        model.train(mode == "train")
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss, total = self.loss(self.leaves(model, given, rank), rank)
            loss.backward()
            if rank is not None:
                dist.all_reduce(total)
                mean = self.order["loss"] == "mean"
                total = total / self.sizes["tp"] / (self.sizes.get("dp", 1) if mean else 1)
            losses.append(float(total))
            if not limits:
                grads = [p.grad for p in model.parameters() if p.grad is not None]
                norm = torch.nn.utils.get_total_norm(grads)
                limits = [float(norm) / 2 ** (n + 1) for n in range(STEPS)]
            norm = attempt(torch.nn.utils.clip_grad_norm_, model.parameters(), limits[step])
            if isinstance(norm, torch.Tensor):
                norm = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
            norms.append(norm)
            optimizer.step()
        return losses, norms, limits

    @torch.no_grad()
    def evaluate(self, model, rank=None):
        out = self.leaves(model.eval(), self.inputs(model, rank), rank)
        return [x.clone() for x in out]  # what a collective still brings has come

    def one(self):
        """The owner's model, trained in one process."""
        mode = "train" if self.same("train") else "eval"
        model = self.build(0)
        losses, norms, limits = self.train(model, mode)
        saved = {"mode": mode, "losses": losses, "norms": norms, "limits": limits}
        saved["state"] = model.state_dict()
        saved["out"] = self.evaluate(model)
        near = self.build(0)
        with torch.no_grad():
            for weight in near.parameters():
                weight.mul_(1 + NUDGE * torch.randn_like(weight))
        self.train(near, mode, limits=limits)
        torch.save({**saved, "near": near.state_dict()}, TO / "one.pt")

    def same(self, mode):
        """Whether the loss is the same whatever the random generator gives."""
        found = []
        for seed in (1, 2):
            model = self.build(0).train(mode == "train")
            given = self.inputs(model)
            torch.manual_seed(seed)
            found.append(float(self.loss(self.leaves(model, given))[1]))
        return found[0] == found[1]

    def ranks(self):
        """The patched model, trained as its README says; then its weights, out and in."""
        dist.init_process_group("gloo")
        rank, one = dist.get_rank(), torch.load(TO / "one.pt")
        split = getattr(self.file, self.order["function"])
        model = split(self.build(0))
        losses, norms, _ = self.train(model, one["mode"], rank, one["limits"])
        how, state = "get_model_state_dict", attempt(get_model_state_dict, model, options=FULL)
        if isinstance(state, str):
            how = f"full_tensor, since get_model_state_dict: {state}"
            state = model.state_dict()
            state = {n: x.full_tensor() if isinstance(x, DTensor) else x for n, x in state.items()}
        saved = {"losses": losses, "norms": norms, "how": how, "state": state}
        if rank == 0:
            torch.save(saved, TO / "ranks.pt")
        torch.save(attempt(self.evaluate, model, rank), TO / f"out-{rank}.pt")
        model = split(self.build(1))
        how = attempt(set_model_state_dict, model, dict(one["state"]), options=FULL)
        how = f"set_model_state_dict: {how}" if isinstance(how, str) else "set_model_state_dict"
        loaded = attempt(self.evaluate, model, rank)
        model = self.build(1)
        model.load_state_dict(one["state"])
        before = attempt(self.evaluate, split(model), rank)
        torch.save((how, loaded, before), TO / f"loaded-{rank}.pt")
        dist.barrier()
        dist.destroy_process_group()

    def back(self):
        """The trained weights of the ranks in the owner's model, and all that is compared."""
        one, ranks = torch.load(TO / "one.pt"), torch.load(TO / "ranks.pt")
        model = self.build(2)
        strict = attempt(model.load_state_dict, ranks["state"], strict=True)
        out = attempt(self.evaluate, model)
        pairs = [(x, ranks["state"].get(n)) for n, x in one["state"].items()]
        apart = {n: apart_of(x, y) for (x, y), n in zip(pairs, one["state"], strict=True)}
        worst = max(apart, key=lambda n: apart[n])
        rounded = {n: 10 * apart_of(x, one["near"][n]) for n, x in one["state"].items()}
        loaded = [torch.load(TO / f"loaded-{r}.pt") for r in range(len(self.places))]
        pairs = zip(one["losses"], ranks["losses"], strict=True)
        found = {
            "mode": one["mode"],
            "own": any(t["role"] == "loss" for t in self.outputs),
            "losses": max(abs(a - b) / max(abs(a), 1e-300) for a, b in pairs),
            "worst": worst,
            "weights": apart[worst],
            "beyond": max((x for n, x in apart.items() if x > rounded[n]), default=0.0),
            "norm": apart_norms(one["norms"], ranks["norms"]),
            "saved_by": ranks["how"],
            "saved": strict if isinstance(strict, str) else self.across(out, "out-{}.pt", None),
            "loaded_by": loaded[0][0],
            "loaded": self.across(one["out"], "loaded-{}.pt", 1),
            "before": self.across(one["out"], "loaded-{}.pt", 2),
        }
        (TO / "found.json").write_text(json.dumps(found))

    def across(self, whole, file, index):
        """How far outputs of the ranks are from one device's, or why that is not known."""
        if isinstance(whole, str):
            return whole
        most, losses = 0.0, []
        for rank in range(len(self.places)):
            found = torch.load(TO / file.format(rank))
            found = found if index is None else found[index]
            if isinstance(found, str):
                return found
            for x, y, told in zip(whole, found, self.outputs, strict=True):
                if told["role"] == "loss":
                    losses.append(y)
                else:
                    most = max(most, apart_of(self.piece(x, told["dims"], rank), y))
        own = [x for x, t in zip(whole, self.outputs, strict=True) if t["role"] == "loss"]
        if own:
            factor = self.sizes.get("dp", 1) if self.order["loss"] == "sum" else 1
            most = max(most, apart_of(own[0], sum(losses) / len(losses) * factor))
        return most


def in_float64():
    """Code that names float32 gets float64, or one process would round where the ranks do not."""
    torch.set_default_dtype(torch.float64)
    to, softmax = torch.Tensor.to, torch.nn.functional.softmax

    def wide(x):
        return torch.float64 if x is torch.float32 else x

    def widened(do):
        return lambda *a, **k: do(*map(wide, a), **{n: wide(x) for n, x in k.items()})

    torch.Tensor.float = torch.Tensor.double
    torch.Tensor.to, torch.nn.functional.softmax = widened(to), widened(softmax)


def attempt(do, *args, **kwargs):
    """What it gives, or the first line of what it raises."""
    try:
        return do(*args, **kwargs)
    except Exception as problem:  # noqa: BLE001 (any cause is a row)
        lines = str(problem).strip().split("\n")
        return f"{type(problem).__name__}: {lines[0][:200]}"


def apart_norms(whole, found):
    """The largest difference, relative to the norm, or why one is missing."""
    missing = [norm for norm in found if isinstance(norm, str)]
    return missing[0] if missing else max(abs(y / x - 1) for x, y in zip(whole, found, strict=True))


def apart_of(x, y):
    """The largest difference, relative to the largest entry, or to the learning rate where that is
    larger: AdamW moves any entry by about so much."""
    if y is None or x.shape != y.shape:
        return math.inf
    if not x.is_floating_point():
        return 0.0 if torch.equal(x, y) else math.inf
    if not x.numel():
        return 0.0
    alike = (x == y) | (x.isnan() & y.isnan())
    apart = torch.where(alike, 0.0, (x - y).abs()).max()
    finite = torch.where(x.isfinite(), x, 0.0).abs().max()
    return float(apart / finite.clamp(min=RATE))


if __name__ == "__main__":
    what = sys.argv[1]
    script = attempt(Script)
    problem = script if isinstance(script, str) else attempt(getattr(script, what))
    if isinstance(problem, str):
        (TO / f"error-{os.environ.get('RANK', '0')}.txt").write_text(problem)
        os._exit(1)
