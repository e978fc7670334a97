"""Finds the model class a request names, and builds the model."""

# pyright: basic

import difflib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shardproof.synthesis.frontends.torch.asked.watching import watching
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import Moved, home_of, make_importable, root_of
from shardproof.synthesis.frontends.torch.named import NAMED, image_of
from shardproof.synthesis.frontends.torch.ranks.arguments import (
    MissingError,
    arguments,
    known_fields,
)
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.request import (
    EXPERTS,
    NOT_CONFIG,
    CaptureRequest,
    read_config_file,
    split_target,
)
from shardproof.synthesis.frontends.torch.results import returned_names
from shardproof.synthesis.frontends.torch.sparse_buffers import without_sparse

TORCH_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "bool": torch.bool,
}


@dataclass
class Target:
    """A model class with what is needed to build it."""

    cls: type[nn.Module]
    """Of a function of the user's, known once it has built a model."""
    build: Callable[..., nn.Module]
    """Builds the model; for Hugging Face models takes config fields that override."""
    config: dict[str, Any]
    root: str
    """Folder of the user's file; '' for a library model."""
    module: Any = None
    """The user's module; None for a library model."""
    hf_config: Any = None
    result_names: tuple[str, ...] = ()
    image: tuple[int, int, int] | None = None
    """Channels, height and width of what a model of a library is given, where it tells them."""
    dropout: tuple[str, ...] = ()
    """Fields of the Hugging Face config that were set to 0."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the user's class, or function, is given."""


def find(request: CaptureRequest, moved: Moved | None = None) -> Target:
    """Import the class, of a file in a copy where its folder was `moved`. Raises CaptureError, or
    what the user's file raises."""
    kind, name = split_target(request.target)
    fields = read_config_file(request.config_file) if request.config_file else {}
    if kind == "hf":
        return library(name, fields, dict(request.config), request.attention)
    if kind in NAMED:
        return named(kind, name, {**fields, **request.config})
    return _user(Path(kind), name, {**fields, **request.config}, moved)


def library(
    name: str, fields: dict[str, Any], extra: dict[str, Any], attention: str = "eager"
) -> Target:
    """A class of transformers. `fields` are a config file's, of which those that the config does
    not know are left out; of `extra`, such a one is an error. `attention` is an implementation of
    the library's; where it is empty, the one that the library chooses.

    Raises:
        CaptureError: no such class, no such field, or values that the config refuses.
    """
    try:
        import transformers
    except ImportError:
        raise CaptureError(
            "transformers is not installed", hint="pip install 'shardproof[hf]'"
        ) from None
    cls: Any = getattr(transformers, name, None)
    if cls is None or not hasattr(cls, "config_class") or cls.config_class is None:
        near = difflib.get_close_matches(name, dir(transformers), 3)
        raise CaptureError(
            f"transformers {transformers.__version__} has no model class {name}",
            hint=f"did you mean {', '.join(near)}?"
            if near
            else "use a class such as LlamaForCausalLM",
        )
    config_class: Any = cls.config_class
    known = set(config_class().to_dict()) | set(dir(config_class))
    for key in extra:
        if key not in known and key not in fields and not _mentioned(key, cls):
            near = difflib.get_close_matches(key, known, 3)
            raise CaptureError(
                f"{config_class.__name__} has no field {key!r}",
                hint=f"did you mean {', '.join(near)}?" if near else "",
            )
    chosen = {"attn_implementation": attention} if attention else {}
    fixed = {"use_cache": False, **chosen, **EXPERTS}

    dropout: dict[str, None] = {}

    def configure(**override: Any) -> Any:
        values = {**fields, **extra, **override, **fixed}
        for key in NOT_CONFIG:
            values.pop(key, None)
        try:
            config = config_class(**values)
        except Exception as problem:
            reason = " ".join(str(problem).split())
            raise CaptureError(f"{config_class.__name__} refuses its fields: {reason}") from problem
        dropout.update(dict.fromkeys(_no_dropout(config)))
        return config

    hf_config = configure()
    return Target(
        cls,
        lambda **override: without_sparse(cls(configure(**override))),
        {**fields, **extra},
        "",
        hf_config=hf_config,
        dropout=tuple(dropout),
    )


def named(kind: str, name: str, config: dict[str, Any]) -> Target:
    """A model of another library; `config` holds arguments of what builds it.

    Raises:
        CaptureError: the library is not installed, has no such model, or refuses the arguments.
    """

    make_importable()

    def build() -> nn.Module:
        return without_sparse(NAMED[kind].build(name, config))

    try:
        with torch.device("meta"):
            model = build()
    except (TypeError, ValueError, RuntimeError) as problem:
        reason = " ".join(str(problem).split())
        raise CaptureError(f"{kind}:{name} cannot be built: {reason}") from problem
    image = image_of(model, name) if NAMED[kind].sized else None
    return Target(type(model), build, config, "", image=image)


def _mentioned(key: str, cls: Any) -> bool:
    """Whether the library's code reads a field that the config class does not declare, or knows
    an older name of one, such as `rope_theta`."""
    names = [cls.__module__, cls.config_class.__module__, "transformers.configuration_utils"]
    names.append("transformers.modeling_rope_utils")
    sources = [inspect.getsource(sys.modules[n]) for n in names if n in sys.modules]
    return any(re.search(rf"\b{re.escape(key)}\b", text) for text in sources)


def _no_dropout(config: Any) -> list[str]:
    """Sets dropout to 0; the fields that were not."""
    changed: list[str] = []
    for key in [k for k in vars(config) if "drop" in k]:
        rate = getattr(config, key)
        if isinstance(rate, float) and rate:
            setattr(config, key, 0.0)
            changed.append(key)
    return changed


def import_file(path: Path, moved: Moved | None = None) -> Any:
    """Run a file of the user's as a module, a member of its package where it is in one; what lies
    in its `ways` can be imported by it, and the process has no arguments.

    Raises:
        CaptureError: its name is another module's.
        Exception: whatever the file raises.
    """
    home = home_of(path)
    make_importable(home, moved)
    sys.argv = [str(home.file)]
    with watching(Places(str(home.base)), real=True, building=True, importing=True):
        if home.packaged:
            module = importlib.import_module(home.name)
            if Path(module.__file__ or "").resolve() != home.file:
                raise CaptureError(
                    f"{home.name} is {module.__file__} to Python, not {home.file}",
                    hint=f"rename the package {home.name.partition('.')[0]}",
                )
            return module
        spec = importlib.util.spec_from_file_location(home.name, home.file)
        if spec is None or spec.loader is None:
            raise CaptureError(f"{home.file.name} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(home.name, module)
        spec.loader.exec_module(module)
    return module


def _user(path: Path, name: str, fields: dict[str, Any], moved: Moved | None) -> Target:
    """A class, or a function that builds a model: its class is known when it is built."""
    module = import_file(path, moved)
    made: Any = getattr(module, name, None)
    is_class = isinstance(made, type)
    if not callable(made) or (is_class and not issubclass(made, nn.Module)):
        classes = [
            k for k, v in vars(module).items() if isinstance(v, type) and issubclass(v, nn.Module)
        ]
        what = f"has no class or function {name}" if made is None else f"has {name}, no nn.Module"
        raise CaptureError(
            f"{path.name} {what}",
            file=path.name,
            hint=f"it has {', '.join(classes) or 'no nn.Module'}",
        )
    kwargs = _arguments(made, fields, path.name)

    def build() -> nn.Module:
        model = made(**kwargs)
        if not isinstance(model, nn.Module):
            raise CaptureError(
                f"{name} gives a {type(model).__name__}, expected a torch.nn.Module",
                file=path.name,
            )
        found.cls = type(model)
        found.result_names = returned_names(found.cls.forward)
        return without_sparse(model)

    found = Target(
        *(made if is_class else nn.Module, build, fields, root_of(f"{path}:{name}"), module),
        arguments=kwargs,
    )
    return found


def _arguments(made: Any, fields: dict[str, Any], file: str) -> dict[str, Any]:
    """As `arguments`. Raises CaptureError where one is missing, or a field is no argument."""
    try:
        kwargs, used = arguments(made, fields, {})
    except MissingError as problem:
        raise CaptureError(str(problem), file=file, hint=problem.hint) from None
    if wrong := sorted(set(fields) - set(used)):
        holder, known = known_fields(made)
        near = difflib.get_close_matches(wrong[0], known, 3) or sorted(known)[:8]
        raise CaptureError(
            f"{holder} has no {'field' if holder != made.__name__ else 'argument'} {wrong[0]!r}",
            file=file,
            hint=f"it has {', '.join(near)}" if near else "it takes none",
        )
    return kwargs
