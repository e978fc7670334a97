"""Puts translated modules between the arguments and results that a captured program left open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardproof.synthesis.frontends.torch.observed import Hole
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program


def splice(
    around: Program,
    holes: Sequence[Hole],
    parts: Mapping[str, Program],
    tied: Sequence[Sequence[str]] = (),
) -> Program:
    """One forward program. `parts` gives a program by module path for each hole.

    Parameters and constants of a part get the path of its module before their own; `tied` lists
    the names of parameters that have several, the first of which counts.

    Raises:
        IRError: a part whose inputs are not those that its hole gives.
    """
    return _Splicing(around, holes, parts, tied).run()


@dataclass
class _Splicing:
    around: Program
    holes: Sequence[Hole]
    parts: Mapping[str, Program]
    tied: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        self.canonical = {name: group[0] for group in self.tied for name in group}
        self.b = Builder(self.around.name)
        self.b.reserve(self.around.types)
        self.results = {v: hole for hole in self.holes for v in hole.results}
        self.arguments = {o.path: o.value for o in self.around.outputs}
        self.rename: dict[str, str] = {}
        self.left_open = {a for hole in self.holes for a in hole.arguments}

    def run(self) -> Program:
        b = self.b
        for item in self.around.inputs:
            if item.name not in self.results:
                b.input(item.name, item.type, item.role, item.path)
        for hole in dict.fromkeys(self.results.values()):
            for item in self.parts[hole.path].inputs:
                if item.role != "input":
                    name = self._owned(hole.path, item.path)
                    if name not in b.types:
                        b.input(name, item.type, item.role, name)
        for node in self.around.nodes:
            for value in node.inputs:
                self._need(value)
            self._emit(node, node.outputs)
        for out in self.around.outputs:
            if out.path not in self.left_open:
                self._need(out.value)
                b.output(self._now(out.value), out.role, out.path)
        return b.build()

    def _owned(self, module: str, path: str) -> str:
        name = f"{module}.{path}"
        return self.canonical.get(name, name)

    def _now(self, value: str) -> str:
        return self.rename.get(value, value)

    def _emit(self, node: Node, outputs: tuple[str, ...]) -> None:
        self.b.add_node(
            node.op,
            [self._now(v) for v in node.inputs],
            node.attrs,
            outputs=outputs,
            source=node.source,
            body=node.body,
        )

    def _need(self, value: str) -> None:
        """Put the part in that makes a value, where that was not done yet."""
        hole = self.results.get(value)
        if hole is None or value in self.rename:
            return
        part = self.parts[hole.path]
        given = [self.arguments[a] for a in hole.arguments]
        for argument in given:
            self._need(argument)
        inputs = [i for i in part.inputs if i.role == "input"]
        if len(inputs) != len(given) or len(part.outputs) != len(hole.results):
            raise IRError(f"the translation of {hole.path} has other inputs or outputs")
        for item, value in zip(inputs, given, strict=True):
            if item.type != self.around[value]:
                raise IRError(
                    f"the translation of {hole.path} takes {item.type}, "
                    f"the code gives it {self.around[value]}"
                )
        inner = {i.name: self._now(v) for i, v in zip(inputs, given, strict=True)}
        inner |= {i.name: self._owned(hole.path, i.path) for i in part.inputs if i.role != "input"}
        for node in part.nodes:
            names = tuple(self.b.fresh(f"{hole.path}.{v}") for v in node.outputs)
            source = replace(node.source, module=hole.path)
            self.b.add_node(
                node.op, [inner[v] for v in node.inputs], node.attrs, outputs=names, source=source
            )
            inner |= zip(node.outputs, names, strict=True)
        for result, out in zip(hole.results, part.outputs, strict=True):
            made = inner[out.value]
            if self.b.types[made] != self.around[result]:
                raise IRError(
                    f"the translation of {hole.path} gives {self.b.types[made]}, "
                    f"the code gives {self.around[result]}"
                )
            self.rename[result] = made
