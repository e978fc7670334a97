"""Collects the facts about a model: one forward pass without data, watched by hooks."""

import contextlib
import functools
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from shardproof.synthesis.emit.facts import Argument, ForwardFact, ModelFacts, ModuleFact
from shardproof.synthesis.emit.library_file import keywords, on_line
from shardproof.synthesis.execute.load import make_inputs, open_target
from shardproof.synthesis.frontends.torch import compiled
from shardproof.synthesis.frontends.torch.asserts import decided
from shardproof.synthesis.frontends.torch.chosen import called as with_rows, reads_whole, unwatched
from shardproof.synthesis.frontends.torch.inputs import find_inputs
from shardproof.synthesis.frontends.torch.materialize import (
    parameters_on_meta,
    tied_groups,
)
from shardproof.synthesis.frontends.torch.ranks.arguments import nested
from shardproof.synthesis.frontends.torch.request import EXPERTS, CaptureRequest
from shardproof.synthesis.frontends.torch.results import returned_names
from shardproof.synthesis.frontends.torch.session import block_lists
from shardproof.synthesis.frontends.torch.target import Target
from shardproof.synthesis.frontends.torch.torch_api import plain_kernels

INDEX = ("layer_idx", "layer_index")
"""Attributes that number the layers."""


def _arguments(
    forward: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Argument, ...]:
    names = [
        p.name
        for p in inspect.signature(forward).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    out: list[Argument] = []
    for index, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            name = names[index] if index < len(names) else f"args[{index}]"
            out.append(Argument(index, name, tuple(value.shape), value.is_floating_point()))
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor):
            out.append(Argument(-1, name, tuple(value.shape), value.is_floating_point()))
    return tuple(out)


def _base(module: torch.nn.Module) -> str:
    if isinstance(module, torch.nn.Linear):
        return "Linear"
    if isinstance(module, torch.nn.Embedding):
        return "Embedding"
    if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d | torch.nn.BatchNorm3d):
        return "BatchNorm"
    return type(module).__name__


def _forward(module: torch.nn.Module) -> ForwardFact | None:
    try:
        lines, first = inspect.getsourcelines(type(module).forward)
        return ForwardFact(
            inspect.getsourcefile(type(module).forward) or "",
            first,
            textwrap.dedent("".join(lines)),
            tuple(_others(type(module))),
        )
    except (OSError, TypeError):
        return None


def _others(cls: type) -> Iterator[str]:
    """The sources of the methods that a class defines, but for what makes it and its forward."""
    for name, method in vars(cls).items():
        if isinstance(method, FunctionType) and name not in ("__init__", "forward"):
            with contextlib.suppress(OSError, TypeError):
                yield textwrap.dedent(inspect.getsource(method))


def _run_once(path: str, blocks: Any, noted: Sequence[dict[str, Any]]) -> None:
    """Let a block that is like an earlier one give what that gave, and be noted as called so.

    Only what the patch is written from rests on this: what it computes is read off its own trace.
    """
    ran: dict[Any, tuple[str, Any, Any]] = {}

    def once(name: str, block: Any) -> Any:
        forward, made = block.forward, _made_like(block)

        @functools.wraps(forward)
        def run(*args: Any, **kwargs: Any) -> Any:
            if reads_whole():  # which rows a block is given is more than their shape
                return forward(*args, **kwargs)
            key = made, _shapes(args), _shapes(tuple(kwargs.items()))
            if key not in ran:
                given = args, kwargs  # kept, for the key names some of them by their addresses
                ran[key] = name, forward(*args, **kwargs), given
                return ran[key][1]
            first, output, _ = ran[key]
            for seen in noted:
                inner = {n: found for n, found in seen.items() if n.startswith(f"{first}.")}
                seen.update({name + n.removeprefix(first): found for n, found in inner.items()})
            return output

        return run

    for index, block in blocks.named_children():
        block.forward = once(f"{path}.{index}".lstrip("."), block)


def _made_like(block: Any) -> tuple[Any, ...]:
    """Classes, parameters and plain numbers of a block, of all modules in it."""
    return tuple(
        (
            name,
            type(m),
            tuple((k, tuple(p.shape)) for k, p in m.named_parameters(recurse=False)),
            _plain(m),
        )
        for name, m in block.named_modules()
    )


def _plain(module: torch.nn.Module) -> tuple[Any, ...]:
    """Attributes that are plain values, the number of the layer aside."""
    kept = (bool, int, float, str, type(None))
    items = vars(module).items()
    return tuple((k, v) for k, v in items if isinstance(v, kept) and k not in INDEX)


def _to_fake(model: Any) -> None:
    """Parameters and buffers as fake tensors, one for all that are of one kind: nothing that is
    collected depends on which is which."""
    made: dict[Any, Any] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, t in held.items():
                if t is not None:
                    kind: Any = (type(t), tuple(t.shape), t.stride(), t.dtype)
                    if kind not in made:
                        fake = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu")
                        made[kind] = fake
                        if isinstance(t, torch.nn.Parameter):
                            made[kind] = torch.nn.Parameter(fake, t.requires_grad)
                    held[name] = made[kind]


def _held(module: Any) -> dict[str, int]:
    """Integers of the plain objects that a module holds, by `name.attribute`."""
    objects = {k: getattr(v, "__dict__", {}) for k, v in module.__dict__.items() if k[0] != "_"}
    return {f"{k}.{n}": i for k, held in objects.items() for n, i in held.items() if type(i) is int}


def _sizes(module: Any) -> dict[str, tuple[int, ...]]:
    """Attributes that are several integers, in order."""
    own = cast(dict[str, Any], vars(module))
    held = {k: v for k, v in own.items() if k[0] != "_"}
    several = {k: cast(Sequence[Any], v) for k, v in held.items() if type(v) in (tuple, list)}
    return {k: tuple(v) for k, v in several.items() if v and all(type(n) is int for n in v)}


def _axes(module: Any) -> tuple[str, dict[str, int]]:
    """The pattern of a layer of einops, and the lengths that it is given."""
    if not type(module).__module__.startswith("einops.layers"):
        return "", {}
    lengths = getattr(module, "axes_lengths", {})
    return getattr(module, "pattern", ""), {k: v for k, v in lengths.items() if type(v) is int}


def _shapes(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return tuple(values.shape), values.dtype
    if isinstance(values, (tuple, list)):
        return tuple(map(_shapes, cast(tuple[Any, ...], values)))
    return values if isinstance(values, (bool, int, float, str, type(None))) else id(values)


def _built(target: Target, name: str) -> tuple[str, tuple[str, ...]]:
    """An expression that builds the model as it was captured, and the names of the user's file
    that it needs. Empty where it cannot be written."""
    if target.module is None:
        plain = {"use_cache": False} if target.hf_config is not None else {}
        experts = EXPERTS if getattr(target.cls, "_can_set_experts_implementation", bool)() else {}
        changed = {**plain, **experts, **dict.fromkeys(target.dropout, 0.0)}
        return f"build_model({keywords(changed)})", ()
    names, arguments = [name], list[str]()
    for key, value in target.arguments.items():
        kind = type(value).__name__
        if key in target.config and value == target.config[key]:
            arguments.append(f"{key}={on_line(value)}")
        elif key in target.config or getattr(target.module, kind, None) is not type(value):
            return "", ()
        else:
            names.append(kind)
            arguments.append(f"{key}={kind}({keywords(target.config)})")
    return f"{names[0]}({', '.join(arguments)})", tuple(names)


def _loss_of_call(forward: Any, inputs: Sequence[str], result: Any) -> str:
    """An expression that calls `model` with inputs and gives its loss, where it returns one: a
    single float, called `loss` or else the first."""
    label = returned_names(forward)
    if isinstance(result, torch.Tensor):
        found = [("", "output", result)]
    elif isinstance(result, Mapping):
        held = cast(Mapping[str, Any], result)
        found = [(f".{k}" if hasattr(held, k) else f'["{k}"]', k, v) for k, v in held.items()]
    elif isinstance(result, (tuple, list)):
        values = cast(Sequence[Any], result)
        label = label if len(label) == len(values) else ("",) * len(values)
        found = [(f"[{i}]", label[i], v) for i, v in enumerate(values)]
    else:
        found = [
            (f".{k}", k, getattr(result, k)) for k in getattr(result, "__dataclass_fields__", ())
        ]
    single = [(at, name) for at, name, v in found if isinstance(v, torch.Tensor) and _is_loss(v)]
    if not single:
        return ""
    at = next((at for at, name in single if name == "loss"), single[0][0])
    taken = list(inspect.signature(forward).parameters)[: len(inputs)]
    call = ", ".join(inputs if taken == list(inputs) else [f"{n}={n}" for n in inputs])
    return f"model({call}){at}"


def _is_loss(value: torch.Tensor) -> bool:
    return value.ndim == 0 and value.is_floating_point()


def collect(request: CaptureRequest) -> ModelFacts:
    """Build the model on the meta device and run its forward on fake tensors."""
    plain_kernels()
    target, config = open_target(request)
    with parameters_on_meta():
        model: Any = target.build().eval()
    compiled.as_written()
    tied = tuple(tied_groups(model))
    seen: dict[str, tuple[tuple[Argument, ...], int, str, tuple[int, ...]]] = {}
    results: dict[str, list[tuple[torch.Tensor, int]]] = {}
    gave: dict[str, Any] = {}
    following: set[str] = set()

    def watch(path: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            with unwatched():
                if isinstance(output, torch.Tensor):
                    results.setdefault(path, []).append((output, output._version))
            if path in seen:
                return
            with unwatched():
                shape = tuple(output.shape) if isinstance(output, torch.Tensor) else ()
                kind = "tensor" if isinstance(output, torch.Tensor) else type(output).__name__
                seen[path] = (_arguments(module.forward, args, kwargs), len(args), kind, shape)
            holder = path.rpartition(".")[0]
            if args and args[0] is gave.get(holder):
                following.add(path)
            gave[holder] = output

        return hook

    found = find_inputs(request, target, model)
    before = dict(model.named_modules())
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, torch.no_grad():
        _to_fake(model)
        for path, module in model.named_modules():
            module.register_forward_hook(watch(path), with_kwargs=True)
        for path in block_lists(model):
            _run_once(path, model.get_submodule(path), (seen, results))
        given = make_inputs(found, 0, torch.float32)
        forward = target.cls.forward
        result: Any = decided(lambda: with_rows(lambda: model(**nested(forward, given))))
    modules: list[ModuleFact] = []
    forwards: dict[str, ForwardFact] = {}
    known: set[Any] = set()
    order = {path: number for number, path in enumerate(seen)}
    module: Any
    for path, module in model.named_modules():
        arguments, positional, kind, shape = seen.get(path, ((), 0, "", ()))
        made = module.__class__
        if made not in known:
            known.add(made)
            if (forward := _forward(module)) is not None:
                forwards.setdefault(type(module).__name__, forward)
        ints = {k: v for k, v in module.__dict__.items() if type(v) is int}
        held = module.named_parameters(recurse=False, remove_duplicate=False)
        params = {k: tuple(p.shape) for k, p in held}
        dropout = isinstance(module, torch.nn.Dropout) and module.p > 0
        modules.append(
            ModuleFact(
                path, type(module).__name__, _base(module), params, ints, arguments, positional,
                kind, shape, len(list(module.children())), dropout,
                any(t._version > version for t, version in results.get(path, ())),
                before.get(path) is not module, *_axes(module), held=_held(module),
                sizes=_sizes(module), called=order.get(path, -1), follows=path in following,
            )
        )  # fmt: skip
    name = target.cls.__name__
    config_class = getattr(getattr(target.cls, "config_class", None), "__name__", "")
    loss = getattr(getattr(model, "loss_function", None), "__name__", "")
    called = "self.loss_function(" in forwards[type(model).__name__].text
    return ModelFacts(
        request.target, name, config, config_class, tuple(modules), forwards,
        loss if called else "", tied, *_built(target, request.target.rpartition(":")[2]),
        _loss_of_call(model.forward, [spec.name for spec in found], result),
        tuple(getattr(model, "tp_plan", None) or ()) if config_class else (),
    )  # fmt: skip
