"""Where a node of the joint graph comes from in the owner's code."""

# pyright: basic

import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import Any

from torch import fx, nn

from shardproof.synthesis.frontends.torch.errors import shown
from shardproof.synthesis.frontends.torch.trace import ROOT
from shardproof.verifier.kernel.program.types import Source

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<where>.*)$')
_HIDDEN = re.compile(r"/(torch|synthesis/frontends/torch)/")
_LAYER = re.compile(r"^(.*\.)?\d+(?=\.|$)")


def layer_of(module: str) -> str:
    """The innermost numbered module that a module path lies in: `model.layers.3`, or ''."""
    found = _LAYER.match(module)
    return found.group(0) if found else ""


def is_backward(node: fx.Node) -> bool:
    return node.meta.get("partitioner_tag") == "is_backward" or bool(
        node.meta.get("autograd_backward")
    )


def node_of(problem: BaseException) -> fx.Node | None:
    """The node of a graph that was being run when this was raised; None where none was."""
    found: fx.Node | None = None
    trace = problem.__traceback__
    while trace is not None:
        node = trace.tb_frame.f_locals.get("n")
        if isinstance(node, fx.Node) and node.meta.get("stack_trace"):
            found = node
        trace = trace.tb_next
    return found


def _frames(trace: str) -> list[re.Match[str]]:
    """The frames of a trace outside of torch; its last one where all are inside."""
    frames = [m for m in map(_FRAME.match, trace.splitlines()) if m]
    return [m for m in frames if not _HIDDEN.search(m["file"])] or frames[-1:]


Span = tuple[str, int, int]
"""A file, with the first and last line of a method in it."""


@dataclass(frozen=True)
class Methods:
    """Where the methods of the owner's classes stand, by the path of the modules that have them."""

    spans: dict[str, frozenset[Span]]

    @classmethod
    def of(cls, model: nn.Module) -> "Methods":
        known: dict[type, frozenset[Span]] = {}
        for module in model.modules():
            kind = type(module)
            if kind not in known:
                known[kind] = frozenset(_spans(kind))
        return cls({path: known[type(m)] for path, m in model.named_modules()})

    def running(self, module: str, file: str, line: int) -> str:
        """The module whose method a line is of: `module`, or the one inside it whose `forward` is
        called by name, without hooks; `module` where several could be meant."""
        if self._has(module, file, line):
            return module
        below = f"{module}." if module else ""
        inside = [p for p in self.spans if p.startswith(below) and self._has(p, file, line)]
        return inside[0] if len(inside) == 1 else module

    def _has(self, module: str, file: str, line: int) -> bool:
        spans = self.spans.get(module, frozenset())
        return any(name == file and first <= line <= last for name, first, last in spans)


def _spans(kind: type) -> Iterator[Span]:
    for cls in kind.__mro__:
        if cls.__module__.partition(".")[0] == "torch":
            continue
        for method in vars(cls).values():
            if isinstance(method, FunctionType):
                code = method.__code__
                yield code.co_filename, code.co_firstlineno, _last_line(code)


def _last_line(code: CodeType) -> int:
    inner = (_last_line(c) for c in code.co_consts if isinstance(c, CodeType))
    return max(*(line or 0 for _, _, line in code.co_lines()), *inner, code.co_firstlineno)


@dataclass
class Provenance:
    """Source locations of the nodes of one graph."""

    root: str = ""
    """Folder of the user's file; paths below it are shown relative to it."""
    methods: Methods | None = None
    """Of the model that is traced, where it is known."""
    known: dict[fx.Node, Source] = field(default_factory=dict[fx.Node, Source])
    parsed: dict[str, Source] = field(default_factory=dict[str, Source])
    running: dict[tuple[str, str, int], str] = field(
        default_factory=dict[tuple[str, str, int], str]
    )

    def source(self, node: fx.Node) -> Source:
        """Innermost frame outside of torch, innermost module; backward nodes get their forward's.

        Gradient additions, and what PyTorch makes of writes, carry no module: they belong to the
        block of their last operand that is made of others.
        """
        found = self.known.get(node)
        if found is None:
            found = self.known[node] = self._find(node)
        return found

    def _find(self, node: fx.Node) -> Source:
        stack: dict[str, Any] = (
            node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
        )
        trace = node.meta.get("stack_trace") or ""
        found = self._frame(trace) if trace else Source()
        if stack:
            module = str(list(stack.values())[-1][0])
            module = "" if module + "." == ROOT else module.removeprefix(ROOT)
            return replace(found, module=self._running(module, trace))
        operands = [
            n for n in node.all_input_nodes if n.op == "call_function" and n.all_input_nodes
        ]
        if is_backward(node) and operands:
            last = self.source(max(operands))
            return replace(found if found.file else last, module=layer_of(last.module))
        return found

    def _running(self, module: str, trace: str) -> str:
        frames = _frames(trace)
        if self.methods is None or not frames:
            return module
        key = module, frames[-1]["file"], int(frames[-1]["line"])
        if key not in self.running:
            self.running[key] = self.methods.running(*key)
        return self.running[key]

    def _frame(self, trace: str) -> Source:
        cached = self.parsed.get(trace)
        if cached is not None:
            return cached
        frames = _frames(trace)
        if not frames:
            return Source()
        chosen, *calls = reversed(frames)
        line = int(chosen["line"])
        text = linecache.getline(chosen["file"], line).strip()
        called = tuple((self.shown(m["file"]), int(m["line"])) for m in calls)
        self.parsed[trace] = Source(self.shown(chosen["file"]), line, "", text, called)
        return self.parsed[trace]

    def shown(self, file: str) -> str:
        """A path relative to the user's folder or to site-packages."""
        return shown(file, self.root)
