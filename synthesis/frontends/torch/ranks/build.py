"""Builds the user's module: on one device, or as one rank of a mesh under a fake process group."""

# pyright: basic
# (PyTorch has no types for what is used here.)

import dataclasses
import difflib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from synthesis.frontends.torch.errors import CaptureError
from synthesis.frontends.torch.materialize import to_fake
from synthesis.frontends.torch.ranks.collectives import tensors
from synthesis.frontends.torch.ranks.places import Places
from synthesis.frontends.torch.request import split_target
from synthesis.frontends.torch.target import Target, import_file, returned_names
from verifier.kernel.program.types import Mesh


class Building(TorchDispatchMode):
    """While a module is imported and built, nothing may be exchanged but parameters."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        talks = func.namespace in ("c10d", "_c10d_functional") and func._opname != "barrier"
        if talks and any(t.device.type != "meta" for t in tensors((args, kwargs))):
            file, line, text = self.places.of(self.places.frame(sys._getframe()))
            raise CaptureError(
                f"{func._opname.strip('_')} while the module is built: what comes of it is not "
                "known",
                file=file,
                line=line,
                text=text,
                hint="build the module without collectives, or compute the value on each rank",
            )
        return func(*args, **(kwargs or {}))


@dataclass
class Built:
    """A module with what is known of how it came to be."""

    model: nn.Module
    target: Target
    used: tuple[str, ...]
    """Fields of the config that it took."""
    buffers: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])


def join_world(mesh: Mesh, rank: int) -> dict[str, Any]:
    """Become one rank of a mesh whose other ranks are not there, and say what a factory may take.

    Names: `rank`, `world_size`, `mesh` or `device_mesh`, and for each mesh dim `tp` `tp_rank`,
    `tp_size` and `tp_group`; on a mesh of one dim also `group` and `process_group`.
    """
    size = mesh.size
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ.update({k: str(v) for k, v in variables.items()})
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    names = mesh.names
    device_mesh = init_device_mesh("cpu", tuple(mesh[n] for n in names), mesh_dim_names=names)
    offered: dict[str, Any] = {"rank": rank, "world_size": size}
    offered |= {"mesh": device_mesh, "device_mesh": device_mesh}
    for name in names:
        offered[f"{name}_rank"] = device_mesh.get_local_rank(name)
        offered[f"{name}_size"] = mesh[name]
        offered[f"{name}_group"] = device_mesh.get_group(name)
    if len(names) == 1:
        offered |= {k: device_mesh.get_group() for k in ("group", "process_group")}
    return offered


def build(
    target: str, config: Mapping[str, Any], offered: Mapping[str, Any], places: Places
) -> Built:
    """Import the file and build the module, its parameters without memory.

    Raises:
        CaptureError: no such name, arguments that do not fit, no module, a module that holds what
            cannot be followed, a collective while it is built.
        Exception: whatever the user's code raises.
    """
    file, name = split_target(target)
    path = Path(file)
    with Building(places):
        module = import_file(path)
        factory: Any = getattr(module, name, None)
        if not callable(factory):
            has = [k for k, v in vars(module).items() if _factory(v, module)]
            near = difflib.get_close_matches(name, has, 3) or has
            raise CaptureError(
                f"{path.name} has no class or function {name}",
                file=path.name,
                hint=f"it has {', '.join(near) or 'neither'}",
            )
        kwargs, used = _arguments(factory, dict(config), offered, path.name)
        with parameters_on_meta() as moved:
            model = factory(**kwargs)
    if not isinstance(model, nn.Module):
        raise CaptureError(
            f"{name} in {path.name} gives a {type(model).__name__}, expected a torch.nn.Module",
            file=path.name,
        )
    _followed(model, path.name)
    carry_over(moved)
    model = model.to(torch.float32).eval()
    found = Target(
        type(model),
        lambda: model,
        dict(config),
        str(path.resolve().parent),
        module,
        result_names=returned_names(type(model).forward),
    )
    return Built(model, found, used)


def _factory(value: Any, module: Any) -> bool:
    own = getattr(value, "__module__", None) == module.__name__
    return own and (inspect.isfunction(value) or _is_module(value))


def _is_module(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


_WRAPPERS = {
    "DistributedDataParallel": "check the module inside, and give what reduces its gradients "
    "with --after-backward",
    "FullyShardedDataParallel": "check the module inside",
}


def _followed(model: nn.Module, file: str) -> None:
    """Refuse what does its work where no op is seen."""
    from torch.distributed.tensor import DTensor

    for path, module in model.named_modules():
        for kind in type(module).__mro__:
            if kind.__name__ in _WRAPPERS:
                raise CaptureError(
                    f"{path or 'the module'} is a {kind.__name__}, which communicates outside of "
                    "the ops that are seen",
                    file=file,
                    hint=_WRAPPERS[kind.__name__],
                )
            if kind.__name__ == "FSDPModule":
                raise CaptureError(
                    f"{path or 'the module'} is sharded by fully_shard, which is not covered",
                    file=file,
                    hint="check the module before fully_shard",
                )
    for name, p in (*model.named_parameters(), *model.named_buffers()):
        if isinstance(p, DTensor):
            raise CaptureError(
                f"{name} is a DTensor, which is not covered",
                file=file,
                hint="check covers modules that hold plain local tensors and call "
                "torch.distributed themselves",
            )


def _arguments(
    factory: Any, fields: dict[str, Any], offered: Mapping[str, Any], file: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments: from the rank, from the fields, or one config object made of the fields."""
    name = getattr(factory, "__name__", "the factory")
    parameters = inspect.signature(factory).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    own = {k: v for k, v in fields.items() if k in parameters or takes_any}
    given = {k: v for k, v in offered.items() if k in parameters and k not in own}
    used = set(own)
    hints = _hints(factory)
    for p in parameters.values():
        kind = hints.get(p.name)
        if p.name in own or not isinstance(kind, type) or not _holder(p.name, kind):
            continue
        known = inspect.signature(kind).parameters
        inside = {k: v for k, v in fields.items() if k in known and k not in own}
        if inside or p.default is p.empty:
            given[p.name] = kind(**inside)
            used |= set(inside)
        break
    kwargs = given | own
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty
        and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and p.name not in kwargs
    ]
    if missing:
        ranks = f"; of a rank it may take {', '.join(offered)}" if offered else ""
        raise CaptureError(
            f"{name} cannot be built: it needs {', '.join(missing)}",
            file=file,
            hint=f"give --config {missing[0]}=...{ranks}",
        )
    return kwargs, tuple(sorted(used))


def _hints(factory: Any) -> dict[str, Any]:
    try:
        return get_type_hints(factory.__init__ if isinstance(factory, type) else factory)
    except Exception:  # noqa: BLE001  (names that only a type checker knows)
        return {}


def _holder(name: str, kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or "onfig" in name


Moved = list[tuple[nn.Parameter, nn.Parameter]]
_EVERY = set(vars(nn.Parameter(torch.empty(0))))


@contextmanager
def parameters_on_meta() -> Iterator[Moved]:
    """Parameters move to the meta device as modules get them; what was moved is told."""
    module_class: Any = nn.Module
    original = module_class.register_parameter
    moved: Moved = []
    known: dict[int, nn.Parameter] = {}

    def register(module: nn.Module, name: str, param: Any) -> None:
        if isinstance(param, nn.Parameter) and param.device.type != "meta":
            if id(param) not in known:
                empty = torch.empty_strided(
                    param.shape, param.stride(), dtype=param.dtype, device="meta"
                )
                known[id(param)] = nn.Parameter(empty, requires_grad=param.requires_grad)
                moved.append((param, known[id(param)]))
            param = known[id(param)]
        original(module, name, param)

    module_class.register_parameter = register
    try:
        yield moved
    finally:
        module_class.register_parameter = original


def carry_over(moved: Moved) -> None:
    """Attributes and hooks of parameters go to those that stand in for them."""
    for old, new in moved:
        for key, value in vars(old).items():
            if key not in _EVERY and key not in vars(new):
                setattr(new, key, value)
        for hook in (getattr(old, "_backward_hooks", None) or {}).values():
            new.register_hook(hook)
        for hook in (getattr(old, "_post_accumulate_grad_hooks", None) or {}).values():
            new.register_post_accumulate_grad_hook(hook)


def without_memory(model: nn.Module) -> None:
    """Parameters and buffers become fake tensors, in place. Call inside the fake mode."""
    carry_over(to_fake(model))
