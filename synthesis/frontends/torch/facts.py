"""Reads off a model what others need to know of it without torch."""

# pyright: basic

import hashlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from shardproof.synthesis.frontends.torch.captured import ModelFacts, ModuleFact, SourceFile
from shardproof.synthesis.frontends.torch.homes import imported
from shardproof.synthesis.frontends.torch.lower import DTYPES
from shardproof.synthesis.frontends.torch.materialize import tied_groups
from shardproof.synthesis.frontends.torch.provenance import Provenance
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.frontends.torch.target import Target
from shardproof.verifier.kernel.program.types import TensorType


def read_facts(
    model: nn.Module, target: Target, name: str, inputs: tuple[InputSpec, ...], places: Provenance
) -> ModelFacts:
    """Facts of the model at its true depth; groups and unused parameters come later."""
    params: dict[str, TensorType] = {}
    frozen: list[str] = []
    for path, p in model.named_parameters():
        params[path] = TensorType(tuple(p.shape), DTYPES[p.dtype])
        if not p.requires_grad:
            frozen.append(path)
    modules = {path: _module(path, m, places) for path, m in model.named_modules()}
    config = target.config if target.hf_config is None else _plain(target.hf_config.to_dict())
    return ModelFacts(
        name,
        type(model).__name__,
        tuple(read_files(model, target, places)),
        config,
        params,
        tuple(tied_groups(model)),
        tuple(frozen),
        (),
        modules,
        (),
        inputs,
    )


def _plain(value: Any) -> Any:
    """JSON data of a config."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _module(path: str, module: nn.Module, places: Provenance) -> ModuleFact:
    ints = {
        k: v
        for k, v in vars(module).items()
        if isinstance(v, int) and not isinstance(v, bool) and not k.startswith("_")
    }
    file, line = "", 0
    try:
        file = places.shown(inspect.getsourcefile(type(module)) or "")
        if not file.startswith("torch/"):
            line = _class_line(type(module))
    except (OSError, TypeError):
        pass
    kind = type(module)
    base = "Linear" if isinstance(module, nn.Linear) else ""
    if kind.__name__ == "Linear" and not base:
        base = f"{kind.__module__}.Linear"
    return ModuleFact(path, kind.__name__, file, line, ints, base)


_LINES: dict[type, int] = {}


def _class_line(cls: type) -> int:
    if cls not in _LINES:
        _LINES[cls] = inspect.getsourcelines(cls)[1]
    return _LINES[cls]


def read_files(
    model: nn.Module, target: Target, places: Provenance, opened: Iterable[str] = ()
) -> list[SourceFile]:
    """The user's files that were imported until now and those of `opened` that are theirs, the
    target's own first, or the library's model file."""
    own = inspect.getsourcefile(type(model)) or ""
    paths = [own] if own else []
    paths += [file for file in imported(target.root) if file != own]
    known = {str(Path(path).resolve()) for path in paths}
    paths += [path for path in opened if path not in known]
    out: list[SourceFile] = []
    for path in paths:
        data = Path(path).read_bytes()
        text = data.decode("utf-8", "replace") if path.endswith(".py") else ""
        location = str(Path(path).resolve()) if target.root else ""
        out.append(SourceFile(places.shown(path), location, hashlib.sha256(data).hexdigest(), text))
    return out
