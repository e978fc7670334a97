"""Where a node of the joint graph comes from in the owner's code."""

# pyright: basic

import linecache
import re
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

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


@dataclass
class Provenance:
    """Source locations of the nodes of one graph."""

    root: str = ""
    """Folder of the user's file; paths below it are shown relative to it."""
    known: dict[fx.Node, Source] = field(default_factory=dict[fx.Node, Source])
    parsed: dict[str, Source] = field(default_factory=dict[str, Source])

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
            return replace(found, module="" if module + "." == ROOT else module.removeprefix(ROOT))
        operands = [
            n for n in node.all_input_nodes if n.op == "call_function" and n.all_input_nodes
        ]
        if is_backward(node) and operands:
            last = self.source(max(operands))
            return replace(found if found.file else last, module=layer_of(last.module))
        return found

    def _frame(self, trace: str) -> Source:
        cached = self.parsed.get(trace)
        if cached is not None:
            return cached
        frames = [m for m in map(_FRAME.match, trace.splitlines()) if m]
        own = [m for m in frames if not _HIDDEN.search(m["file"])]
        if not frames:
            return Source()
        chosen, *calls = reversed(own or frames[-1:])
        line = int(chosen["line"])
        text = linecache.getline(chosen["file"], line).strip()
        called = tuple((self.shown(m["file"]), int(m["line"])) for m in calls)
        self.parsed[trace] = Source(self.shown(chosen["file"]), line, "", text, called)
        return self.parsed[trace]

    def shown(self, file: str) -> str:
        """A path relative to the user's folder or to site-packages."""
        return shown(file, self.root)
