"""What to capture, and the one function that captures it."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import python_path
from shardproof.synthesis.frontends.torch.named import NAMED

Progress = Callable[[str], None]
"""Called with the name of each phase as it begins."""


def silent(phase: str) -> None:
    """The progress that nobody follows."""
    del phase


_INPUT = re.compile(
    r"^(?P<name>[A-Za-z_]\w*(?:\.\w+)*)=(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\](?:<(?P<below>\d+))?"
    r"(?:\|(?P<ignored>-?\d+))?$"
)
EXPERTS = {"experts_implementation": "batched_mm"}
"""Of the ways in which transformers computes experts, the one that branches on no value."""
NOT_CONFIG = ("architectures", "transformers_version", "torch_dtype", "dtype", "model_type")
"""Of a config file, what is no argument of the config's class."""
DTYPE_NAMES = ("f64", "f32", "bf16", "f16", "i64", "i32", "u8", "bool")


def library_classes(pattern: str) -> list[str]:
    """Names of transformers that a pattern matches, those that stand for no one model left out.

    Raises:
        CaptureError: transformers is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise CaptureError("transformers is not installed", hint=str(error)) from None
    general = ("Auto", "PreTrained", "PushToHub")
    found = [n for n in dir(transformers) if fnmatchcase(n, pattern)]
    return sorted(n for n in found if not n.startswith(general))


@dataclass(frozen=True)
class InputSpec:
    """One argument of `forward`: shape, dtype, and for integers the values it takes."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    below: int = 0
    """Integers are in 0 ... below - 1; 0: not known."""
    strides: tuple[int, ...] = ()
    """Of an example that is not contiguous, such as a slice: `view` may fail on it."""
    ignored: int | None = None
    """One more integer that any entry may be, such as the label -100."""
    sampled: bool = False
    """`below` is that of an example, or a guess."""

    @property
    def limit(self) -> int:
        """All integers are in 0 ... limit - 1; 0: that is not so, or not known."""
        return self.below if self.ignored is None else 0

    @property
    def range(self) -> str:
        """As `parse` reads it."""
        other = "" if self.ignored is None else f"|{self.ignored}"
        return (f"<{self.below}" if self.below else "") + other

    def drawn(self, numbers: Any) -> Any:
        """Integers of the input, from a tensor of any large ones: one in four is `ignored`."""
        below = self.below or 2
        kept = numbers % below
        if self.ignored is not None:
            kept[numbers // below % 4 == 0] = self.ignored
        return kept

    @classmethod
    def parse(cls, text: str) -> InputSpec:
        """Read `idx=i64[2, 16]`, `idx=i64[2, 16]<65` (values below 65), or `idx=i64[2, 16]<65|-100`
        (values below 65, or -100)."""
        found = _INPUT.match(text.strip())
        if found is None or found["dtype"] not in DTYPE_NAMES:
            raise CaptureError(
                f"{text!r} is not an input",
                hint="write name=dtype[extents], for example idx=i64[2,16]<65; dtypes: "
                + ", ".join(DTYPE_NAMES),
            )
        shape = tuple(int(n) for n in found["shape"].replace(" ", "").split(",") if n)
        ignored = None if found["ignored"] is None else int(found["ignored"])
        return cls(found["name"], shape, found["dtype"], int(found["below"] or 0), ignored=ignored)


def ignored_in(specs: Iterable[InputSpec]) -> dict[str, int]:
    """By name, the integer that entries of an input may be beside those from 0 on."""
    return {s.name: s.ignored for s in specs if s.ignored is not None}


@dataclass(frozen=True)
class Limits:
    """What the process that runs the user's code may take."""

    wall_s: float = 900.0
    cpu_s: int = 1800
    memory_bytes: int = 12 << 30
    file_bytes: int = 2 << 30
    open_files: int = 1024


@dataclass(frozen=True)
class CaptureRequest:
    """A model to capture.

    `target` is `path/model.py:ClassName` or `hf:LlamaForCausalLM`. `config` holds the fields of a
    Hugging Face config, or the arguments of the user's class (or of its config dataclass).
    """

    target: str
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    config_file: str = ""
    """A config.json whose fields come first; those in `config` override them."""
    inputs: tuple[InputSpec, ...] = ()
    """Empty: `example_inputs()` of the user's file, or token ids and labels for `hf:`."""
    batch: int | None = None
    seq: int | None = None
    gradients: bool = True
    full_depth: bool = False
    """Trace every layer, also where fewer layers of the same kinds would do."""
    attention: str = "eager"
    """`eager` or `sdpa`, for Hugging Face models."""
    dtype: str = "f32"
    env: tuple[str, ...] = ()
    """Variables of the environment that the owner's code is given, each `NAME` or `NAME=VALUE`."""
    limits: Limits = Limits()
    rolled: bool = True
    """Whether repeated layers are captured as one."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CaptureRequest:
        """What `to_json` made of one."""
        return TypeAdapter(cls).validate_python(data)


def read_config(items: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Read `--config` values: (config file, fields). Each is `key=value` or a .json or .toml file.

    Raises:
        CaptureError: a file that cannot be read, or an item that is neither.
    """
    file = ""
    fields: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if equals and key.isidentifier():
            fields[key] = _value(value)
        elif item.endswith((".json", ".toml")) and not file:
            file = item
            read_config_file(file)
        else:
            raise CaptureError(
                f"{item!r} is not a config value",
                hint="write key=value, or one file ending in .json",
            )
    return file, fields


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def read_config_file(path: str) -> dict[str, Any]:
    """The fields in a .json or .toml file. Raises CaptureError where it cannot be read."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        data = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    except OSError as problem:
        raise CaptureError(f"config file {path} cannot be read: {problem.strerror}") from None
    except json.JSONDecodeError as problem:
        raise CaptureError(
            f"config file {path} is not JSON: {problem.msg}", file=path, line=problem.lineno
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise CaptureError(f"config file {path} cannot be read: {problem}") from None
    if not isinstance(data, dict):
        raise CaptureError(f"config file {path} holds a {type(data).__name__}, expected an object")
    return cast(dict[str, Any], data)


def is_library(target: str) -> bool:
    """Whether a target is a model of a library, by name."""
    kind, colon, name = target.partition(":")
    return kind in ("hf", *NAMED) and bool(colon and name)


def resolved(target: str) -> str:
    """`package.module:Class` as the file of that module, looked up in the working directory and in
    the folders of PYTHONPATH; other targets as they are.

    Raises:
        CaptureError: there is no such module.
    """
    kind, colon, name = target.rpartition(":")
    parts = kind.split(".")
    if not colon or is_library(target) or parts[-1] == "py" or not all(map(_is_name, parts)):
        return target
    here = Path.cwd()
    for folder in (here, *python_path()):
        place = folder.joinpath(*parts)
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if file.is_file():
                shown = file.relative_to(here) if file.is_relative_to(here) else file
                return f"{shown}:{name}"
    raise CaptureError(
        f"{kind} is not a Python file, nor a module in the working directory or in PYTHONPATH",
        hint="write path/model.py:ClassName",
    )


def _is_name(text: str) -> bool:
    return text.isidentifier()


def held_in_containers(inputs: Sequence[InputSpec]) -> list[str]:
    """What is said of arguments that hold the tensors, of which each call gets new ones."""
    names = dict.fromkeys(i.name.partition(".")[0] for i in inputs if "." in i.name)
    told = f"Each call is given dicts, lists and objects of its own: {', '.join(names)}."
    return [told] if names else []


def ask_for_inputs(request: CaptureRequest) -> None:
    """Ask what `forward` is to be given where nothing can say it: before PyTorch is imported.

    Raises:
        CaptureError: the model's file has no `example_inputs`, and no inputs are given; a library
            is not installed.
    """
    kind, name = split_target(request.target)
    if kind in NAMED:
        NAMED[kind].find()
    if request.inputs or kind == "hf" or (kind in NAMED and NAMED[kind].sized):
        return
    if kind in NAMED:
        hint = "give each argument of forward: --input x=f32[4,16]"
        raise CaptureError(f"{kind} does not tell what {name} is given", hint=hint)
    text = Path(kind).read_text(encoding="utf-8", errors="replace")
    takes = None if "example_inputs" in text or "import *" in text else _takes(text, name)
    if takes is None:
        return
    given = " ".join(f"--input {argument}=f32[4,16]" for argument in takes or ("x",))
    raise CaptureError(
        f"no example inputs: {name}.forward takes {', '.join(takes) or 'none by name'}",
        file=Path(kind).name,
        hint=f"give dtype and extents of each, {given}; or define example_inputs() in the file",
    )


def _takes(text: str, name: str) -> list[str] | None:
    """Names of the arguments without a default of the `forward` of a class; None where the text
    does not define that."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return None
    found = [n for n in body if isinstance(n, ast.ClassDef) and n.name == name]
    methods = [m for c in found for m in c.body if isinstance(m, ast.FunctionDef)]
    for method in methods:
        if method.name == "forward":
            given = [a.arg for a in method.args.args]
            return given[1 : len(given) - len(method.args.defaults)]
    return None


def split_target(target: str) -> tuple[str, str]:
    """(`hf`, another library of `NAMED` or the file; the name). Raises CaptureError."""
    kind, colon, name = resolved(target).rpartition(":")
    if kind in NAMED and name:
        return kind, name
    if not colon or not name.isidentifier() or not kind:
        raise CaptureError(
            f"{target!r} names no model",
            hint="write path/model.py:ClassName, package.module:ClassName or hf:LlamaForCausalLM",
        )
    if kind != "hf":
        path = Path(kind)
        if path.suffix != ".py":
            raise CaptureError(f"{kind} is not a Python file", hint="write path/model.py:ClassName")
        if not path.is_file():
            raise CaptureError(f"file {kind} not found", hint="check the path before the colon")
    return kind, name
