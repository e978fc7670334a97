"""Runs a model in PyTorch in float64, to compare captured programs with."""

# pyright: basic
# (PyTorch has no types for what is used here.)

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from synthesis.frontends.torch.inputs import find_inputs
from synthesis.frontends.torch.request import CaptureRequest, InputSpec
from synthesis.frontends.torch.session import prepare
from synthesis.frontends.torch.target import TORCH_DTYPES, find
from synthesis.frontends.torch.trace import named_outputs

_NARROW = (torch.float32, torch.bfloat16, torch.float16)


class Wide(TorchFunctionMode):
    """Keeps float64 values that need a gradient in float64 where the model casts them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        x = args[0] if args else None
        if isinstance(x, torch.Tensor) and x.dtype == torch.float64 and x.requires_grad:
            if func in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
                return x
            args = tuple(torch.float64 if _narrow(a) else a for a in args)
            if _narrow(kwargs.get("dtype")):
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def _narrow(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in _NARROW


def make_inputs(specs: tuple[InputSpec, ...], seed: int) -> dict[str, torch.Tensor]:
    """Random arguments: floats in float64, integers below their bound."""
    generator = torch.Generator().manual_seed(seed)
    out: dict[str, torch.Tensor] = {}
    for spec in specs:
        dtype = TORCH_DTYPES[spec.dtype]
        if dtype.is_floating_point:
            out[spec.name] = torch.randn(spec.shape, generator=generator, dtype=torch.float64)
        else:
            below = 2 if spec.dtype == "bool" else max(spec.below, 1)
            out[spec.name] = torch.randint(0, below, spec.shape, generator=generator).to(dtype)
    return out


def randomise(model: nn.Module, seed: int) -> None:
    """Give every parameter random values of moderate size, norms and biases included."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            p.copy_(noise * 0.2 + (1.0 if p.ndim == 1 else 0.0))


def save_reference(request: CaptureRequest, seed: int, folder: Path) -> None:
    """Write inputs, params, outputs, grads and cotangents, one .npz each."""
    torch.manual_seed(seed)
    target = find(request)
    model = prepare(target.build(), torch.float64, request.gradients)
    specs = find_inputs(request, target, model)
    inputs = make_inputs(specs, seed)
    randomise(model, seed)
    with Wide():
        named, loss = named_outputs(model(**inputs), target.result_names)
        cotangents: dict[str, torch.Tensor] = {}
        if loss is not None:
            dict(named)[loss].backward()
        elif request.gradients:
            generator = torch.Generator().manual_seed(seed + 2)
            wanted = [(n, t) for n, t in named if t.requires_grad]
            for name, t in wanted:
                cotangents[name] = torch.randn(t.shape, generator=generator, dtype=t.dtype)
            torch.autograd.backward([t for _, t in wanted], list(cotangents.values()))
    _save(folder / "inputs.npz", inputs)
    _save(folder / "params.npz", dict(model.named_parameters()))
    _save(folder / "outputs.npz", dict(named))
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    _save(folder / "grads.npz", grads)
    _save(folder / "cotangents.npz", cotangents)


def _save(path: Path, values: dict[str, torch.Tensor]) -> None:
    arrays: Any = {k: v.detach().numpy() for k, v in values.items()}
    np.savez(path, **arrays)
