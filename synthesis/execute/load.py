"""Builds the models and the example inputs that a run compares."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from shardproof.synthesis.execute.job import Job
from shardproof.synthesis.frontends.torch.homes import Moved, home_of, make_importable
from shardproof.synthesis.frontends.torch.request import (
    EXPERTS,
    NOT_CONFIG,
    CaptureRequest,
    InputSpec,
    is_library,
    split_target,
)
from shardproof.synthesis.frontends.torch.target import TORCH_DTYPES, Target, find


def load_file(path: Path) -> ModuleType:
    """Import a Python file by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    make_importable(home_of(path))
    spec.loader.exec_module(module)
    return module


def open_target(request: CaptureRequest) -> tuple[Target, dict[str, Any]]:
    """The target, and the config fields that build it."""
    target = find(request)
    config = {k: v for k, v in target.config.items() if k not in NOT_CONFIG}
    return target, config


def patched_model(
    job: Job, tree: Path, changes: Mapping[str, Any] | None = None
) -> tuple[torch.nn.Module, Any]:
    """The model built from the patched source, and its `parallelize`. `changes` are fields of the
    config of a library model.

    Raises:
        CaptureError: as `find`.
        Exception: whatever the user's code raises.
    """
    path = tree / job.patched_file
    if is_library(job.request.target):
        module = load_file(path)
        plain = {"attn_implementation": job.request.attention, "use_cache": False, **EXPERTS}
        fixed = plain if split_target(job.request.target)[0] == "hf" else {}
        return module.build_model(**fixed, **(changes or {})), getattr(module, job.parallelize)
    if job.patched_new:
        module = load_file(path)
        return module.build_model(), getattr(module, job.parallelize)
    name = split_target(job.request.target)[1]
    moved = Moved(Path(job.patched_root), tree)
    target = find(replace(job.request, target=f"{path}:{name}"), moved)
    return target.build(), getattr(target.module, job.parallelize)


def make_inputs(
    found: Sequence[InputSpec], seed: int, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Example inputs, the same for the same seed; floating ones in `dtype`."""
    generator = torch.Generator().manual_seed(seed)
    out: dict[str, torch.Tensor] = {}
    for spec in found:
        kind = TORCH_DTYPES[spec.dtype]
        if kind.is_floating_point:
            values = torch.randn(spec.shape, generator=generator, dtype=torch.float64)
            out[spec.name] = values.to(dtype)
        else:
            values = spec.drawn(torch.randint(0, 1 << 40, spec.shape, generator=generator))
            out[spec.name] = values.to(kind)
    return out


def rows(inputs: dict[str, torch.Tensor], index: int, count: int) -> dict[str, torch.Tensor]:
    """The part of the batch (dim 0 of the first input) that data-parallel rank `index` gets."""
    batch = next(iter(inputs.values())).shape[0]
    return {
        name: value.chunk(count)[index] if value.ndim and value.shape[0] == batch else value
        for name, value in inputs.items()
    }
