"""Loads a model class from a target and builds the model and its example inputs."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch

from synthesis.execute.job import InputSpec

DTYPES = {"i64": torch.int64, "i32": torch.int32, "bool": torch.bool}


def load_file(path: Path) -> ModuleType:
    """Import a Python file by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


def load_class(target: str) -> Any:
    if target.startswith("hf:"):
        import transformers

        return getattr(transformers, target.removeprefix("hf:"))
    path, _, name = target.rpartition(":")
    return getattr(load_file(Path(path)), name)


def build(cls: Any, config: Mapping[str, Any]) -> torch.nn.Module:
    """Build the model from `config`.

    A transformers class gets its `config_class(**config)`; a class whose constructor takes one
    argument that `config` does not name gets an instance of the argument's annotated class, or of
    the one class of its file called `...Config`; any other gets `cls(**config)`.
    """
    if getattr(cls, "config_class", None) is not None:
        return cls(cls.config_class(**config))
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [p for p in inspect.signature(cls).parameters.values() if p.kind in kinds]
    if len(parameters) == 1 and parameters[0].name not in config:
        module = vars(sys.modules[cls.__module__])
        annotation = parameters[0].annotation
        named = module.get(annotation) if isinstance(annotation, str) else annotation
        if dataclasses.is_dataclass(named):
            return cls(cast(Any, named)(**config))
        found = [v for k, v in module.items() if k.endswith("Config") and inspect.isclass(v)]
        if len(found) == 1:
            return cls(found[0](**config))
    return cls(**config)


def make_inputs(specs: Mapping[str, InputSpec], seed: int, dtype: torch.dtype) -> dict[str, Any]:
    """Example inputs, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    out: dict[str, Any] = {}
    for name, spec in specs.items():
        if spec.arange:
            out[name] = torch.arange(spec.shape[-1]).expand(spec.shape).contiguous()
        elif spec.dtype in DTYPES:
            ids = torch.randint(spec.low, spec.high, spec.shape, generator=generator)
            out[name] = ids.to(DTYPES[spec.dtype])
        else:
            out[name] = torch.randn(spec.shape, generator=generator, dtype=torch.float64).to(dtype)
    return out
