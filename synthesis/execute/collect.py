"""Collects the facts about a model: one forward pass without data, watched by hooks."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from synthesis.emit.facts import Argument, ForwardFact, ModelFacts, ModuleFact
from synthesis.execute.load import make_inputs, open_target
from synthesis.frontends.torch.inputs import find_inputs
from synthesis.frontends.torch.request import CaptureRequest


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
    return type(module).__name__


def _forward(module: torch.nn.Module) -> ForwardFact | None:
    try:
        lines, first = inspect.getsourcelines(type(module).forward)
        return ForwardFact(
            inspect.getsourcefile(type(module).forward) or "",
            first,
            textwrap.dedent("".join(lines)),
        )
    except (OSError, TypeError):
        return None


def collect(request: CaptureRequest) -> ModelFacts:
    """Build the model on the meta device and run its forward on fake tensors."""
    target, config = open_target(request)
    with torch.device("meta"):
        model: Any = target.build().eval()
    names: dict[int, list[str]] = {}
    for name, param in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(param), []).append(name)
    tied = tuple(tuple(group) for group in names.values() if len(group) > 1)
    seen: dict[str, tuple[tuple[Argument, ...], int, str, tuple[int, ...]]] = {}

    def watch(path: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            if path not in seen:
                shape = tuple(output.shape) if isinstance(output, torch.Tensor) else ()
                kind = "tensor" if isinstance(output, torch.Tensor) else type(output).__name__
                seen[path] = (_arguments(module.forward, args, kwargs), len(args), kind, shape)

        return hook

    found = find_inputs(request, target, model)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, torch.no_grad():
        model = model.to_empty(device="cpu")
        for path, module in model.named_modules():
            module.register_forward_hook(watch(path), with_kwargs=True)
        model(**make_inputs(found, 0, torch.float32))
    modules: list[ModuleFact] = []
    forwards: dict[str, ForwardFact] = {}
    module: Any
    for path, module in model.named_modules():
        arguments, positional, kind, shape = seen.get(path, ((), 0, "", ()))
        forward = _forward(module)
        if forward and type(module).__name__ not in forwards:
            forwards[type(module).__name__] = forward
        ints = {k: v for k, v in module.__dict__.items() if type(v) is int}
        params = {k: tuple(p.shape) for k, p in module.named_parameters(recurse=False)}
        dropout = isinstance(module, torch.nn.Dropout) and module.p > 0
        modules.append(
            ModuleFact(
                path, type(module).__name__, _base(module), params, ints, arguments, positional,
                kind, shape, len(list(module.children())), dropout,
            )
        )  # fmt: skip
    name = target.cls.__name__
    config_class = getattr(getattr(target.cls, "config_class", None), "__name__", "")
    loss = getattr(getattr(model, "loss_function", None), "__name__", "")
    called = "self.loss_function(" in forwards[type(model).__name__].text
    return ModelFacts(
        request.target, name, config, config_class, tuple(modules), forwards,
        loss if called else "", tied,
    )  # fmt: skip
