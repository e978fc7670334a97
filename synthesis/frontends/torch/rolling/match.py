"""Finds runs of isomorphic blocks: equal ops, wiring, attributes, types, parameter names.

Forms are compared in full, never by hash alone.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardproof.verifier.kernel.program.program import Node, Program

Ref = tuple[Any, ...]
"""How an operand is reached: ("local", n) the n-th value of this direction, ("param", offset, rest)
a parameter of the block, ("saved", n) the n-th forward value of the same step, ("entered", k) the
k-th value that entered the forward of the same step, ("ext", k) the k-th other value."""


@dataclass
class Step:
    """One iteration: `period` consecutive entries of the list, forward and backward."""

    forward: list[Node]
    backward: list[Node]
    form: tuple[Any, ...] = ()
    refs: dict[str, list[Ref]] = field(default_factory=dict[str, list[Ref]])
    """First result of a node -> how each operand is reached."""
    local: dict[str, int] = field(default_factory=dict[str, int])
    """Forward value -> its number."""
    local_backward: dict[str, int] = field(default_factory=dict[str, int])
    entered: list[str] = field(default_factory=list[str])
    entered_backward: list[str] = field(default_factory=list[str])
    params: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    """Parameter name -> (offset, rest of the path)."""


@dataclass(frozen=True)
class Run:
    start: int
    period: int
    steps: tuple[Step, ...]


def entry_of(module: str, prefix: str) -> int | None:
    """Number of the entry of list `prefix` that a module path lies in."""
    if not module.startswith(prefix + "."):
        return None
    head = module[len(prefix) + 1 :].split(".", 1)[0]
    return int(head) if head.isdigit() else None


class Blocks:
    """The nodes and parameters of the entries of one list."""

    def __init__(self, program: Program, prefix: str, backward: frozenset[str]) -> None:
        self.program = program
        self.prefix = prefix
        self.forward: dict[int, list[Node]] = {}
        self.backward: dict[int, list[Node]] = {}
        self.params: dict[int, dict[str, str]] = {}
        for node in program.nodes:
            entry = entry_of(node.source.module, prefix)
            if entry is not None:
                side = self.backward if node.outputs[0] in backward else self.forward
                side.setdefault(entry, []).append(node)
        for item in program.inputs:
            entry = entry_of(item.path, prefix) if item.role == "param" else None
            if entry is not None:
                rest = item.path[len(f"{prefix}.{entry}") :]
                self.params.setdefault(entry, {})[item.name] = rest
        self.grads = {o.path: o.value for o in program.outputs if o.role == "grad"}
        self.order = {id(n): k for k, n in enumerate(program.nodes)}
        self.paths = {i.name: i.path for i in program.inputs}

    @property
    def entries(self) -> list[int]:
        return sorted(self.forward)

    def step(self, entries: Sequence[int]) -> Step:
        def ordered(side: Mapping[int, list[Node]]) -> list[Node]:
            found = [n for i in entries for n in side.get(i, [])]
            return sorted(found, key=lambda n: self.order[id(n)])

        step = Step(ordered(self.forward), ordered(self.backward))
        for offset, i in enumerate(entries):
            for name, rest in self.params.get(i, {}).items():
                step.params[name] = (offset, rest)
        heads = {f"{self.prefix}.{i}": offset for offset, i in enumerate(entries)}
        parts = [
            self._side(step, step.forward, step.local, step.entered, heads, False),
            self._side(
                step, step.backward, step.local_backward, step.entered_backward, heads, True
            ),
        ]
        types = self.program.types
        owned = sorted(
            (place, str(types[name]), self._grad_place(step, name))
            for name, place in step.params.items()
        )
        step.form = (*parts, tuple(owned))
        return step

    def _grad_place(self, step: Step, name: str) -> int:
        """Number of the backward value that is the gradient of a parameter; -1: there is none."""
        value = self.grads.get(self.paths[name])
        if value is None:
            return -1
        return step.local_backward.get(value, -2)

    def _side(
        self,
        step: Step,
        nodes: list[Node],
        local: dict[str, int],
        entered: list[str],
        heads: Mapping[str, int],
        backward: bool,
    ) -> tuple[Any, ...]:
        types = self.program.types
        numbers: dict[str, int] = {}
        form: list[Any] = []
        for node in nodes:
            refs: list[Ref] = []
            for v in node.inputs:
                if v in local:
                    refs.append(("local", local[v]))
                elif v in step.params:
                    refs.append(("param", *step.params[v]))
                elif backward and v in step.local:
                    refs.append(("saved", step.local[v]))
                elif backward and v in step.entered:
                    refs.append(("entered", step.entered.index(v)))
                else:
                    if v not in numbers:
                        numbers[v] = len(entered)
                        entered.append(v)
                    refs.append(("ext", numbers[v], types[v]))
            for out in node.outputs:
                local[out] = len(local)
            step.refs[node.outputs[0]] = refs
            found = re.match(r"\d+", node.source.module[len(self.prefix) + 1 :])
            head = f"{self.prefix}.{found.group(0)}" if found else ""
            place = (heads.get(head, -1), node.source.module[len(head) :])
            form.append(
                (
                    node.op,
                    tuple(sorted(node.attrs.items())),
                    place,
                    tuple(refs),
                    tuple(types[o] for o in node.outputs),
                    node.body,
                )
            )
        return tuple(form)
