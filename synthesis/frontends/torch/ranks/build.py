"""Builds the user's module: on one device, or as one rank of a mesh under a fake process group."""

# pyright: basic
# (PyTorch has no types for what is used here.)

import difflib
import gc
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, is_fake
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from shardproof.synthesis.frontends.torch.asked.watching import AskedError, watching
from shardproof.synthesis.frontends.torch.built_draws import BuiltDraws
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import root_of
from shardproof.synthesis.frontends.torch.materialize import (
    as_one,
    fake_mode,
    fake_parameter,
    to_fake,
)
from shardproof.synthesis.frontends.torch.ranks import averaging
from shardproof.synthesis.frontends.torch.ranks.arguments import MissingError, arguments
from shardproof.synthesis.frontends.torch.ranks.collectives import tensors
from shardproof.synthesis.frontends.torch.ranks.groups import noted
from shardproof.synthesis.frontends.torch.ranks.known import Known
from shardproof.synthesis.frontends.torch.ranks.pipelines import SCHEDULE, Pipeline, note_schedules
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.placing import cut_when_asked, placed_by_torch
from shardproof.synthesis.frontends.torch.ranks.result import Event
from shardproof.synthesis.frontends.torch.ranks.several_models import together
from shardproof.synthesis.frontends.torch.ranks.sharded import refuse_uncovered
from shardproof.synthesis.frontends.torch.ranks.spans import Span, share, storage
from shardproof.synthesis.frontends.torch.ranks.steps import Step, step_of
from shardproof.synthesis.frontends.torch.request import split_target
from shardproof.synthesis.frontends.torch.results import returned_names
from shardproof.synthesis.frontends.torch.sparse_buffers import without_sparse
from shardproof.synthesis.frontends.torch.switching import in_mode
from shardproof.synthesis.frontends.torch.target import Target, import_file, library
from shardproof.verifier.kernel.program.types import Mesh

PLACED = "a tensor that is placed whole on all ranks"
Moved = list[tuple["weakref.ref[torch.Tensor]", nn.Parameter]]
"""Parameters that were replaced, each with what stands for it."""


@dataclass
class Registered:
    """Parameters as modules got them."""

    moved: Moved = field(default_factory=list[Any])
    met: list[tuple[nn.Parameter, nn.Parameter]] = field(default_factory=list[Any])
    """Pairs that lay in the same memory."""
    spans: list[tuple[StorageWeakRef, int, int, nn.Parameter]] = field(default_factory=list[Any])
    """Where each lay."""

    def lies(self, param: nn.Parameter, span: Span) -> None:
        """What stands for a parameter that lay there."""
        here = StorageWeakRef(span.storage)
        for other, first, last, met in self.spans:
            apart = span.last < first or last < span.first
            if other.cdata == here.cdata and not other.expired() and not apart:
                self.met.append((met, param))
        self.spans.append((here, span.first, span.last, param))


class Building(TorchDispatchMode):
    """While a module is imported and built, nothing may be exchanged but parameters, and tensors
    that PyTorch places whole on all ranks: `events` says that these must be alike."""

    def __init__(self, places: Places, events: list[Event]) -> None:
        super().__init__()
        self.places, self.events = places, events

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        talks = func.namespace in ("c10d", "_c10d_functional") and func._opname != "barrier"
        if talks and not all(isinstance(t, FakeTensor) for t in tensors((args, kwargs))):
            place = self.places.of(self.places.frame(sys._getframe()))
            if func._opname != "broadcast_" or not placed_by_torch():
                file, line, text = place
                raise CaptureError(
                    f"{func._opname.strip('_')} while the module is built: what comes of it is not "
                    "known",
                    file=file,
                    line=line,
                    text=text,
                    hint="build the module without collectives, or compute the value on each rank",
                )
            group = dist.ProcessGroup.unbox(args[1])
            ranks = tuple(dist.get_process_group_ranks(group))
            given = {f"{PLACED} ({n})": t for n, t in enumerate(tensors(args[0]), 1)}
            self.events += [
                Event("alike", ranks, name, 0, *place, group.group_name, held)
                for name, held in averaging.written(given).items()
            ]
        return func(*args, **(kwargs or {}))


GIVEN = "{name} is given of its rank: {names}."
LEFT = "{name} keeps its default of {names}: what a rank would pass is not looked at."


@dataclass
class Built:
    """A module with what is known of how it came to be."""

    model: nn.Module
    target: Target
    used: tuple[str, ...]
    """Fields of the config that it took."""
    mode: FakeTensorMode
    """That its parameters are fake tensors of."""
    groups: tuple[Event, ...] = ()
    """What the rank did to make process groups, and what others must have as it has."""
    offered: tuple[str, ...] = ()
    """What it took of what a rank is offered."""
    left: tuple[str, ...] = ()
    """Of what a rank is offered, the arguments that kept their default."""
    step: Step | None = None
    """The training step that is called in place of the module."""
    moved: tuple[Any, ...] = ()
    """Parameters that other objects stand for."""

    def told(self, target: str) -> Iterator[str]:
        """What a rank gave the factory, and what it could have given, in sentences."""
        name = target.rpartition(":")[2]
        if self.offered:
            yield GIVEN.format(name=name, names=", ".join(self.offered))
        if self.left:
            yield LEFT.format(name=name, names=", ".join(self.left))


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
    averaging.stand_in()
    note_schedules()
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
    target: str,
    config: Mapping[str, Any],
    offered: Mapping[str, Any],
    places: Places,
    tp_plan: str | Mapping[str, str] = "",
    against: str = "",
    attention: str = "eager",
    filled: bool = False,
    step: str = "",
) -> Built:
    """Import the file and build the module, its parameters without memory. A class of transformers
    is built of its config, with an `attention` as `library` takes it, and on ranks made parallel
    by its plan. A function that takes a `model` is given the one that it is checked `against`; if
    it returns None, it has changed that. Buffers of unknown value are left to the caller where some
    are `filled`. With a `step`, what is built may be a tuple, of which the module is the first.

    Raises:
        CaptureError: no such name, arguments that do not fit, no module, a module that holds what
            cannot be followed, a collective while it is built.
        Exception: whatever the user's code raises.
    """
    file, name = split_target(target)
    if file == "hf":
        return _of_library(name, config, offered, places, tp_plan, attention)
    path = Path(file)
    groups: list[Event] = []
    with Building(places, groups), BuiltDraws(places), noted(groups, places):
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
        whole = _whole(factory, config, against)
        kwargs, used = _arguments(
            factory, dict(config), {**offered, **({"model": None} if whole else {})}, path.name
        )
        mode = fake_mode()

        more: tuple[Any, ...] = ()
        known = Known()
        known.building = True

        def make() -> Any:
            nonlocal more
            given = None if whole is None else whole()
            with known if step else nullcontext():
                made = factory(**(kwargs if whole is None else {**kwargs, "model": given}))
            made = given if made is None else made
            if step and isinstance(made, tuple):
                made, *others = made
                more = tuple(others)
                function = getattr(module, step, None)
                if isinstance(made, nn.Module) and inspect.isfunction(function):
                    made = together(made, more, function)
            return without_sparse(made)

        model, registered = _made(make, mode)
        known.building = False
    if isinstance(model, SCHEDULE):
        model = Pipeline(model)
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise CaptureError(
            f"{name} in {path.name} gives a {kind}, expected a torch.nn.Module",
            file=path.name,
            hint="return the schedule that runs it: ScheduleGPipe(stage, ...)"
            if kind.endswith("PipelineStage")
            else "",
        )
    _followed(model, path.name)
    if not filled:
        refuse_unknown(unknown(model), path.name)
    carry_over(registered.moved)
    model = in_mode(_in_float32(model), False)
    if step:
        _refuse_one_memory(model, registered, path.name)
    training = step_of(module, step, (model, *more), path.name, known) if step else None
    found = Target(
        type(model) if training is None else training.cls,
        lambda: model,
        dict(config),
        root_of(target),
        module,
        result_names=returned_names(training.function if training else type(model).forward),
    )
    taken = tuple(name for name in kwargs if name in offered)
    own = inspect.signature(factory).parameters
    left = tuple(name for name in offered if name in own and name not in kwargs)
    return Built(
        model, found, used, mode, tuple(groups), taken, left, training, tuple(registered.moved)
    )


def _whole(factory: Any, config: Mapping[str, Any], against: str) -> Callable[[], Any] | None:
    """What makes the model of one device, for a function that takes it."""
    if not against or "model" in config or "model" not in inspect.signature(factory).parameters:
        return None
    file, name = split_target(against)
    if file == "hf":
        return library(name, dict(config), {}, "").build
    kind = getattr(import_file(Path(file)), name)
    kwargs, _ = _arguments(kind, dict(config), {}, Path(file).name)
    return lambda: without_sparse(kind(**kwargs))


def _of_library(
    name: str,
    config: Mapping[str, Any],
    offered: Mapping[str, Any],
    places: Places,
    tp_plan: str | Mapping[str, str],
    attention: str,
) -> Built:
    """A class of transformers, on a rank split as its plan says.

    Raises:
        CaptureError: as `library`; a plan over a mesh of other dims than one.
    """
    found, mode = library(name, dict(config), {}, attention), fake_mode()
    events: list[Event] = []
    with Building(places, events):
        if offered:
            from transformers.initialization import no_tie_weights

            with no_tie_weights():  # as from_pretrained does: each name of a weight is split
                model, registered = _made(found.build, mode)
            _split(model, offered["mesh"], tp_plan)
            model.tie_weights(recompute_mapping=False)
        else:
            model, registered = _made(found.build, mode)
    _followed(model, f"hf:{name}")
    refuse_unknown(unknown(model), f"hf:{name}")
    carry_over(registered.moved)
    model = in_mode(_in_float32(model), False)
    return Built(model, replace(found, build=lambda: model), tuple(config), mode, tuple(events))


def _split(model: Any, mesh: Any, tp_plan: str | Mapping[str, str]) -> None:
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    if mesh.ndim != 1:
        raise CaptureError(
            f"a plan of transformers splits over one mesh dim, the mesh has {mesh.ndim}",
            hint="check it on --mesh tp=2",
        )
    asked: Any = tp_plan if isinstance(tp_plan, str) else dict(tp_plan)
    rules = model._resolve_parallel_plans(DistributedConfig(tp_size=mesh.size(), tp_plan=asked))[0]
    if not rules:
        raise CaptureError(
            f"{type(model).__name__} has no tensor-parallel plan", hint="give one: --tp-plan FILE"
        )
    apply_tensor_parallelism(model, mesh, rules)


def _was_set(p: Any) -> bool:
    """Whether memory was put into a parameter that had none."""
    return type(p) is FakeTensor and p.untyped_storage().device.type != "meta"


def _made(make: Callable[[], Any], mode: FakeTensorMode) -> tuple[Any, Registered]:
    """The module, its parameters without memory; with memory where it cannot be built without, as
    where `weight.data` is set or an address is asked for."""
    try:
        with cut_when_asked(), watching(Places(""), building=True), parameters_on(mode) as found:
            model = make()
        if isinstance(model, nn.Module) and any(map(_was_set, model.parameters())):
            raise TypeError("data of a parameter was set")
        return model, found
    except Exception as problem:
        if isinstance(problem, CaptureError) and not isinstance(problem, AskedError):
            raise
        with watching(Places(""), real=True, building=True):
            model = make()
        if any(isinstance(p, DTensor) for p in model.parameters()):
            raise
        return model, Registered()


def _in_float32(model: nn.Module) -> nn.Module:
    """Its floats in float32. Buffers stay the tensors that they are, which others may hold too; so
    do parameters that need no other type: PyTorch exchanges those that are fake."""
    for buffer in model.buffers():
        if _other_float(buffer) and type(buffer) is torch.Tensor:
            buffer.data = buffer.data.float()
    if not any(map(_other_float, (*model.parameters(), *model.buffers()))):
        return model
    return model._apply(lambda t: t.float() if t.is_floating_point() else t)


def _other_float(t: torch.Tensor) -> bool:
    return t.is_floating_point() and t.dtype != torch.float32


def _factory(value: Any, module: Any) -> bool:
    own = getattr(value, "__module__", None) == module.__name__
    return own and (inspect.isfunction(value) or _is_module(value))


def _is_module(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


_WRAPPERS = {
    "FullyShardedDataParallel": "fully_shard is covered; or check the module inside",
}


def unknown(model: nn.Module) -> list[str]:
    """The buffers of a module that was just built of which no value is known."""
    return [name for name, buffer in model.named_buffers() if is_fake(buffer)]


def refuse_unknown(names: Iterable[str], file: str, filled: Collection[str] = ()) -> None:
    """Raises CaptureError for a buffer of unknown value that nothing else fills."""
    for name in names:
        if name not in filled:
            raise CaptureError(
                f"the buffer {name} is made of parameters while the module is built, so its value "
                "is not known",
                file=file,
                hint=f"compute it in forward; or state its layout, as of one that a checkpoint "
                f"fills: --layout '{name}=R'",
            )


def _followed(model: nn.Module, file: str) -> None:
    """Refuse what does its work where no op is seen."""
    refuse_uncovered(model, file)
    averaging.refuse_other_hooks(model, file)
    for path, module in model.named_modules():
        for kind in type(module).__mro__:
            if kind.__name__ in _WRAPPERS:
                raise CaptureError(
                    f"{path or 'the module'} is a {kind.__name__}, which communicates outside of "
                    "the ops that are seen",
                    file=file,
                    hint=_WRAPPERS[kind.__name__],
                )


def _arguments(
    factory: Any, fields: dict[str, Any], offered: Mapping[str, Any], file: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """As `arguments`. Raises CaptureError where one is missing."""
    try:
        return arguments(factory, fields, offered)
    except MissingError as problem:
        raise CaptureError(str(problem), file=file, hint=problem.hint) from None


_EVERY = set(vars(nn.Parameter(torch.empty(0))))


@contextmanager
def parameters_on(mode: FakeTensorMode) -> Iterator[Registered]:
    """Parameters become fake tensors of the mode as modules get them, so that they take no memory
    and whatever fills, places or shards them runs. They stay the objects that they are, which
    others may hold too, where that can be; which were replaced is told."""
    module_class: Any = nn.Module
    original = module_class.register_parameter
    found = Registered()
    known: dict[int, tuple[weakref.ref[torch.Tensor], nn.Parameter]] = {}

    def register(module: nn.Module, name: str, param: Any) -> None:
        if isinstance(param, nn.Parameter) and not is_fake(param):
            before = known.get(id(param))
            if before is not None and before[0]() is param:
                param = before[1]
            else:
                param = stand_in(param)
        original(module, name, param)

    def stand_in(param: nn.Parameter) -> nn.Parameter:
        span = Span.of(param)
        with mode:
            new = fake_parameter(param)
        if as_one(param, new):
            old, new = new, param
        else:
            old = param
            known[id(old)] = (weakref.ref(old), new)
            found.moved.append(known[id(old)])
        carry(old, new)
        found.lies(new, span)
        return new

    module_class.register_parameter = register
    try:
        yield found
    finally:
        module_class.register_parameter = original


def carry_over(moved: Moved) -> None:
    """What was said of parameters after they were replaced goes to those that stand in for them."""
    for known, new in moved:
        old = known()
        if old is not None:
            carry(old, new)


def carry(old: Any, new: Any) -> None:
    """Attributes and hooks of a parameter go to another."""
    for key, value in vars(old).items():
        if key not in _EVERY and key not in vars(new):
            setattr(new, key, value)
    held = {id(h) for h in (getattr(new, "_backward_hooks", None) or {}).values()}
    for hook in (getattr(old, "_backward_hooks", None) or {}).values():
        if id(hook) not in held:
            new.register_hook(hook)
    held = {id(h) for h in (getattr(new, "_post_accumulate_grad_hooks", None) or {}).values()}
    for hook in (getattr(old, "_post_accumulate_grad_hooks", None) or {}).values():
        if id(hook) not in held:
            new.register_post_accumulate_grad_hook(hook)


def without_memory(model: nn.Module, step: Step | None = None) -> Moved:
    """Parameters and buffers become fake tensors, in place; what stands for a parameter now. Call
    inside the fake mode."""
    placed: list[Any] = [b for b in model.buffers() if isinstance(b, DTensor) and not is_fake(b)]
    for b in placed:
        piece = b._local_tensor
        b._local_tensor = torch.empty_strided(piece.shape, piece.stride(), dtype=piece.dtype)
    pairs = to_fake(model)
    for old, new in pairs:
        carry(old, new)
    if step is not None:
        step.exchange(pairs)
    return [(weakref.ref(old), new) for old, new in pairs]


def _refuse_one_memory(model: nn.Module, registered: Registered, file: str) -> None:
    """Raises CaptureError for two parameters of one memory: a step that writes into the one changes
    the other, of which a trace tells nothing."""
    params = {n: p for n, p in model.named_parameters() if not isinstance(p, DTensor)}
    names = {id(p): n for n, p in params.items()}
    pairs = [(names.get(id(p)), names.get(id(q))) for p, q in registered.met]
    places: dict[int, list[str]] = {}
    for name, p in params.items():
        others = places.setdefault(storage(p)._cdata, [])
        pairs += [(n, name) for n in others if share(params[n], p)]
        others.append(name)
    for first, second in pairs:
        if first is not None and second is not None:
            raise CaptureError(
                f"the parameters {first} and {second} are of one memory",
                file=file,
                hint="let both modules have one parameter: second.weight = first.weight",
            )


def refuse_held(model: nn.Module, moved: Iterable[Any]) -> None:
    """Raises CaptureError for a parameter that something still holds as the object which another
    stands for: it gets no gradient there, and what is written into it is lost."""
    names = {id(p): name for name, p in model.named_parameters()}
    gc.collect()
    for known, new in moved:
        if known() is not None and id(new) in names:
            raise CaptureError(
                f"the parameter {names[id(new)]} is held outside of its module, with a view or a "
                "weak reference to it",
                hint="take it from the model where it is needed: model.parameters()",
            )
