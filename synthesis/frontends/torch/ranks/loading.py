"""Loads a checkpoint whose elements are numbered, on one device and on each rank: what a rank then
holds says which elements it was given. Runs in the worker.

A class of transformers is loaded by its own `from_pretrained`. A module of the user's is loaded by
`load_state_dict`, or by a function of the user's, from the state dict of the model.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from shardproof.synthesis.frontends.torch.buffers import persistent
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.materialize import tied_groups
from shardproof.synthesis.frontends.torch.ranks import build as building
from shardproof.synthesis.frontends.torch.ranks.collectives import tensors
from shardproof.synthesis.frontends.torch.ranks.dtensors import local
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.request import MADE_UP, RanksRequest
from shardproof.synthesis.frontends.torch.ranks.result import Loaded
from shardproof.synthesis.frontends.torch.request import split_target
from shardproof.synthesis.frontends.torch.target import library

MOST = 1 << 26
"""Elements of a checkpoint: each is a number in float64."""


class Loading(TorchDispatchMode):
    """While a module is loaded, no weight may come from another rank: none is there."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places
        self.counted: set[str] = set()
        """Collectives on integers, which are taken as this rank has them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in ("c10d", "_c10d_functional") and func._opname != "barrier":
            what = func._opname.strip("_")
            file, line, text = self.places.of(self.places.frame(sys._getframe()))
            if any(t.is_floating_point() for t in tensors((args, kwargs))):
                raise CaptureError(
                    f"{what} of weights while the module is loaded: what comes of it is not known",
                    file=file,
                    line=line,
                    text=text,
                    hint="let each rank take its piece of the whole (src_data_rank=None)",
                )
            self.counted.add(f"{what} at {file}:{line}")
        return func(*args, **(kwargs or {}))


def load_one(request: RanksRequest, folder: Path, places: Places) -> Loaded:
    """The model on one device, loaded; the numbered checkpoint is left in `folder`.

    Raises:
        CaptureError: a checkpoint that cannot be read or is too large; as `building.build`.
        Exception: whatever the code that loads raises.
    """
    file, name = split_target(request.against)
    if file != "hf":
        filled = bool(request.filled)
        built = building.build(request.against, request.config, {}, places, filled=filled)
        model = _whole(built.model)
        state = _numbered(_shapes(request.load) or model.state_dict())
        torch.save(state, folder / "state.pt")
        _take(model, state)
        return _loaded(model, buffers=_floats(model))
    found = library(name, dict(request.config), {})
    if request.load == MADE_UP:
        model = found.cls(found.hf_config).double()
        with torch.no_grad():
            for own, made in _numbered(dict(model.named_parameters())).items():
                model.get_parameter(own).copy_(made)
        cast(Any, model).save_pretrained(folder)
    else:
        from safetensors.torch import save_file

        save_file(_numbered(_shapes(request.load)), folder / "model.safetensors", {"format": "pt"})
    return _of_library(found, folder)


def load_rank(request: RanksRequest, folder: Path, rank: int, places: Places) -> Loaded:
    """The parallel module on one rank, loaded from what `load_one` left.

    Raises:
        CaptureError: weights that come from other ranks; as `building.build`.
        Exception: whatever the code that loads raises.
    """
    offered = building.join_world(request.mesh, rank)
    file, name = split_target(request.target)
    watch = Loading(places)
    if file == "hf":
        with watch:
            found = _of_library(library(name, dict(request.config), {}), folder, request)
    else:
        filled = bool(request.filled)
        built = building.build(request.target, request.config, offered, places, filled=filled)
        state = torch.load(folder / "state.pt", weights_only=True)
        take = _take
        if request.load_with:
            take = getattr(built.target.module, request.load_with, None)
            if not callable(take):
                raise CaptureError(
                    f"{Path(file).name} has no function {request.load_with}",
                    hint="--load-with names a function of TARGET's file: (module, state_dict)",
                )
        model = _whole(built.model)
        with watch:
            take(model, state)
        found = _loaded(model, buffers=_floats(model))
    return Loaded(found.held, found.ties, found.missing, tuple(sorted(watch.counted)))


def _of_library(found: Any, folder: Path, request: RanksRequest | None = None) -> Loaded:
    """A class of transformers after `from_pretrained`, split by its plan where it is on a rank."""
    kind, more = found.cls, {}
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    if request is not None:
        from transformers.distributed.configuration_utils import DistributedConfig

        asked: Any = request.tp_plan if isinstance(request.tp_plan, str) else dict(request.tp_plan)
        more["distributed_config"] = DistributedConfig(tp_size=request.mesh.size, tp_plan=asked)
    with on_the_cpu(kind):
        model, said = kind.from_pretrained(
            folder, config=found.hf_config, dtype=torch.float64, output_loading_info=True, **more
        )
    return _loaded(model, said["missing_keys"])


@contextmanager
def on_the_cpu(kind: Any) -> Iterator[None]:
    """Ranks are loaded to the CPU without a device map, which would ask for `accelerate`."""
    prepare = kind.prepare_distribute_model

    def without_map(*args: Any, **kwargs: Any) -> Any:
        config, _, manager = prepare(*args, **kwargs)
        return config, None, manager

    kind.prepare_distribute_model = without_map
    try:
        yield
    finally:
        del kind.prepare_distribute_model


def _floats(model: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers of floats that a checkpoint has."""
    held = dict(model.named_buffers(remove_duplicate=False))
    return {n: held[n] for n in persistent(model) if held[n].is_floating_point()}


def _loaded(
    model: nn.Module, missing: Any = (), buffers: Mapping[str, torch.Tensor] | None = None
) -> Loaded:
    named: dict[str, Any] = dict(model.named_parameters(remove_duplicate=False))
    ties = {n: group[0] for group in tied_groups(model) for n in group}
    every = {**named, **(buffers or {})}
    held = {n: local(t).detach().double().numpy() for n, t in every.items()}
    return Loaded(held, ties, tuple(sorted(n for n in missing if n in named and n not in ties)))


def _take(model: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """`load_state_dict`. Raises CaptureError where it does not fit."""
    try:
        model.load_state_dict(dict(state))
    except (RuntimeError, NotImplementedError) as problem:
        said = " ".join(str(problem).split())
        raise CaptureError(
            f"{type(model).__name__}.load_state_dict does not take the model's state dict: {said}",
            hint="--load-with FUNCTION, of TARGET's file, loads it: (module, state_dict)",
        ) from problem


def _whole(model: nn.Module) -> nn.Module:
    """The module with parameters, and buffers that a checkpoint has, that have memory, in which no
    element is a number yet."""
    known: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is not None:
                module._parameters[name] = known.setdefault(id(p), _unset(p))
    made: dict[int, torch.Tensor] = {}
    floats = {id(b) for b in _floats(model).values() if not isinstance(b, DTensor)}
    for module in model.modules():
        for name, b in module._buffers.items():
            if id(b) in floats and b is not None:
                empty = torch.full(b.shape, float("nan"), dtype=torch.float64)
                module._buffers[name] = made.setdefault(id(b), empty)
    return model


def _unset(p: Any) -> nn.Parameter:
    held = local(p)
    made: Any = torch.full(held.shape, float("nan"), dtype=torch.float64)
    if isinstance(p, DTensor):
        made = DTensor.from_local(
            made, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride()
        )
    new = nn.Parameter(made, requires_grad=p.requires_grad)
    building.carry(p, new)
    return new


def _numbered(given: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors of these shapes, whose elements count on from 1; integers as they are.

    Raises:
        CaptureError: more than `MOST` elements.
    """
    out: dict[str, torch.Tensor] = {}
    last = 0
    for name, t in given.items():
        if not t.is_floating_point():
            out[name] = torch.zeros(t.shape, dtype=t.dtype) if t.is_meta else t
            continue
        last += t.numel()
        if last > MOST:
            raise CaptureError(
                f"the checkpoint has more than {MOST} elements",
                hint="check a model of fewer layers and smaller extents: --load made-up",
            )
        counted = torch.arange(last - t.numel() + 1, last + 1, dtype=torch.float64)
        out[name] = counted.reshape(t.shape)
    return out


def _shapes(given: str) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, without memory; none of one that is made up.

    Raises:
        CaptureError: no such file or folder, no safetensors in it.
    """
    if given == MADE_UP:
        return {}
    path = Path(given)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise CaptureError(
            f"{given} is not a checkpoint", hint="give a folder with *.safetensors, or made-up"
        )
    return {name: t for file in files for name, t in _header(file).items()}


_TYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def _header(file: Path) -> dict[str, torch.Tensor]:
    """Names, shapes and types of a safetensors file: a length of 8 bytes, then JSON of them."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        try:
            if length > file.stat().st_size:
                raise ValueError("it ends before its header does")
            entries = json.loads(opened.read(length))
            entries.pop("__metadata__", None)
            return {
                name: torch.empty(e["shape"], dtype=_TYPES[e["dtype"]], device="meta")
                for name, e in entries.items()
            }
        except (ValueError, KeyError, TypeError) as problem:
            raise CaptureError(
                f"{file} is not a safetensors file of plain numbers: {type(problem).__name__}: "
                f"{problem}",
                hint="quantized checkpoints are not covered; give the weights they were made of",
            ) from None
