"""What the emitter knows about a model: its modules as they were called, and their source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from shardproof.synthesis.frontends.torch.request import is_library


@dataclass(frozen=True, slots=True)
class Argument:
    """One tensor that a module was called with."""

    position: int
    """Index among the positional arguments, -1 for a keyword argument."""
    name: str
    """Keyword, or the parameter's name in `forward`."""
    shape: tuple[int, ...]
    is_float: bool


@dataclass(frozen=True, slots=True)
class ModuleFact:
    """One module of the model, as one forward pass of one device saw it."""

    path: str
    kind: str
    """Class name."""
    base: str
    """`Linear`, `Conv1D`, `Embedding` where the class is one of these, `BatchNorm` where it is one
    of any number of dims, else the class name."""
    params: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Own parameters (not those of children) with their shapes."""
    ints: Mapping[str, int] = field(default_factory=dict[str, int])
    """Integer attributes of the instance."""
    arguments: tuple[Argument, ...] = ()
    positional: int = 0
    """Number of positional arguments of the call, tensors or not."""
    output: str = ""
    """`tensor` where it returns one tensor, else the type's name; empty if it was never called."""
    output_shape: tuple[int, ...] = ()
    children: int = 0
    training_dropout: bool = False
    """It is a dropout with p > 0."""
    written: bool = False
    """What it returns is written into after that."""
    replaced: bool = False
    """`forward` put it where another module was, or none."""
    pattern: str = ""
    """Of a layer of einops, what it rearranges."""
    lengths: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of a layer of einops, the axes that it is told the length of."""
    held: Mapping[str, int] = field(default_factory=dict[str, int])
    """Integers of objects that the instance holds, `config.width`."""
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Attributes of the instance that are several integers."""
    called: int = -1
    """The place of its first call among those of all modules, by when they end; -1 without one."""
    follows: bool = False
    """In a list of modules: its first argument is what the one before it gave."""

    @property
    def activation(self) -> Argument | None:
        """The first floating-point tensor it is called with."""
        return next((a for a in self.arguments if a.is_float), None)


@dataclass(frozen=True, slots=True)
class ForwardFact:
    """The source of one class's `forward`."""

    file: str
    line: int
    text: str
    others: tuple[str, ...] = ()
    """The sources of the other methods that the class defines."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model: where it comes from, its modules in registration order, its shared parameters."""

    target: str
    """`path/model.py:Class` or `hf:Class`."""
    class_name: str
    config: Mapping[str, Any]
    """Keyword arguments that build it (a transformers config for `hf:`)."""
    config_class: str = ""
    modules: tuple[ModuleFact, ...] = ()
    forwards: Mapping[str, ForwardFact] = field(default_factory=dict[str, ForwardFact])
    """By class name."""
    loss: str = ""
    """Name of the loss function a transformers model holds, where its forward calls it."""
    tied: tuple[tuple[str, ...], ...] = ()
    """Groups of parameter paths that are one parameter, owner first."""
    build: str = ""
    """An expression that builds it, of names of its file or of `build_model` of a new one."""
    names: tuple[str, ...] = ()
    """The names of its file that `build` needs; empty for a library."""
    loss_of_call: str = ""
    """An expression that calls `model` and gives its loss; empty where it returns none."""
    ruled: tuple[str, ...] = ()
    """Names of modules and parameters for which its class is published with a style over `tp`."""

    @property
    def file(self) -> str | None:
        """The user's file, or None for a model of a library."""
        return None if is_library(self.target) else self.target.rpartition(":")[0]

    def find(self, pattern: str) -> ModuleFact | None:
        """The first module whose path matches `pattern`, `*` standing for one layer index."""
        parts = pattern.split(".")
        for module in self.modules:
            names = module.path.split(".")
            if len(names) == len(parts) and all(map(fnmatchcase, names, parts)):
                return module
        return None

    def code(self, path: str, since: str = "") -> str:
        """A path below the module `since` as Python writes it: `.layers[1].attn` for
        `layers.1.attn`, `.layers["1"].attn` where these are in a dict."""
        out = ""
        for part in path.split(".") if path else ():
            held = self.find(since) if part.isdigit() else None
            key = f'"{part}"' if held is not None and held.kind == "ModuleDict" else part
            out += f"[{key}]" if part.isdigit() else f".{part}"
            since = f"{since}.{part}" if since else part
        return out

    def each_block(self, path: str) -> str:
        """The line that goes through the modules of a list, or of a dict of numbers."""
        held = self.find(path)
        values = ".values()" if held is not None and held.kind == "ModuleDict" else ""
        return f"    for block in model{self.code(path)}{values}:"

    def text_of(self, kind: str) -> str:
        fact = self.forwards.get(kind)
        return fact.text if fact else ""
