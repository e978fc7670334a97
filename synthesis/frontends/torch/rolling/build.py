"""Replaces a run of isomorphic blocks by one forward and one backward `scan`."""

from collections.abc import Mapping
from dataclasses import replace

from shardproof.synthesis.frontends.torch.rolling.match import Ref, Run, Step
from shardproof.synthesis.frontends.torch.rolling.order import topological, typed
from shardproof.synthesis.frontends.torch.rolling.paths import Group
from shardproof.synthesis.frontends.torch.rolling.wiring import Carried, Entry, Wiring
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Input, Node, Output, Program
from shardproof.verifier.kernel.program.types import Source, TensorType


class Roll:
    """Builds the two scans of one run."""

    def __init__(self, program: Program, run: Run, wiring: Wiring, group: Group) -> None:
        self.program = program
        self.steps = run.steps
        self.wiring = wiring
        self.group = group
        self.first = run.steps[0]
        self.stacked = {
            place: group.pattern(place[0]) + place[1] for place in self.first.params.values()
        }
        self.members = {id(n) for s in run.steps for n in (*s.forward, *s.backward)}
        self.extra: list[tuple[int, Node]] = []
        self.types: dict[str, TensorType] = {}
        self.failed = False
        self.grads = self._own_grads()
        self.stacked_grads: dict[tuple[int, str], str] = {}
        self.names: dict[bool, dict[int, str]] = {
            side: {n: v for v, n in self._local(self.first, side).items()} for side in (False, True)
        }
        """Local numbers to value names of the first step, forward and backward."""

    def build(self) -> Program | None:
        """None where something outside reads a step that was not traced at its place."""
        saved = self._saved()
        wanted = {side: self._wanted(side) for side in (False, True)}
        order = {id(n): k for k, n in enumerate(self.program.nodes)}
        self.types = {
            v: t
            for v, t in self.program.types.items()
            if not any(v in s.params for s in self.steps)
        }
        for (offset, rest), path in self.stacked.items():
            name = next(n for n, place in self.first.params.items() if place == (offset, rest))
            self.types[path] = self._stack(self.program.types[name])
        nodes: list[tuple[int, Node]] = [
            (order[id(n)], n) for n in self.program.nodes if id(n) not in self.members
        ]
        scans: list[tuple[int, Node]] = []
        for side in (False, True):
            members = self.first.backward if side else self.first.forward
            if members:
                at = min(order[id(n)] for n in members)
                scans.append((at, self._scan(side, saved, wanted[side])))
        nodes = [*nodes, *scans, *self.extra]
        if self.failed:
            return None
        outputs = self._outputs()
        if outputs is None or self.failed:
            return None
        inputs = self._inputs()
        ordered = topological(nodes, inputs)
        if ordered is None:
            return None
        program = Program(self.program.name, inputs, tuple(ordered), outputs, {}, self.program.mesh)
        return typed(program, self.types)

    def _local(self, step: Step, side: bool) -> dict[str, int]:
        return step.local_backward if side else step.local

    def _stack(self, t: TensorType) -> TensorType:
        return TensorType((self.group.count, *t.shape), t.dtype)

    def _saved(self) -> list[Ref]:
        """Forward values of a step that its own backward reads."""
        found: dict[Ref, None] = {}
        for node in self.first.backward:
            for ref in self.first.refs[node.outputs[0]]:
                if ref[0] == "saved" or (
                    ref[0] == "entered" and isinstance(self.wiring.forward[ref[1]], Carried)
                ):
                    found[ref] = None
        return list(found)

    def _wanted(self, side: bool) -> dict[int, list[tuple[int, str]]]:
        """Local number -> (step, value) read outside of the run, by nodes or outputs."""
        users: set[str] = {o.value for o in self.program.outputs}
        for node in self.program.nodes:
            if id(node) not in self.members:
                users.update(node.inputs)
        if side is False:
            for entry in self.wiring.backward:
                if isinstance(entry, Carried):
                    users.add(entry.initial)
        out: dict[int, list[tuple[int, str]]] = {}
        for i, step in enumerate(self.steps):
            for value, number in self._local(step, side).items():
                if value in users:
                    out.setdefault(number, []).append((i, value))
        return out

    def _source(self, source: Source) -> Source:
        """The source of a node of the first step, with its entry number replaced by the pattern."""
        rest = source.module[len(self.group.prefix) + 1 :]
        number, _, tail = rest.partition(".")
        offset = int(number) - self.group.start
        pattern = self.group.pattern(offset)
        return replace(source, module=f"{pattern}.{tail}" if tail else pattern)

    def _scan(
        self, side: bool, saved: list[Ref], wanted: Mapping[int, list[tuple[int, str]]]
    ) -> Node:
        entries: tuple[Entry, ...] = self.wiring.backward if side else self.wiring.forward
        b = Builder(f"{self.group.prefix}.{'backward' if side else 'forward'}", self.program.mesh)
        names = self.names[side]
        types = self.program.types
        nodes = self.first.backward if side else self.first.forward
        refs = [r for n in nodes for r in self.first.refs[n.outputs[0]]]
        carried = [(k, e) for k, e in enumerate(entries) if isinstance(e, Carried)]
        inner: dict[tuple[object, ...], str] = {}
        for k, entry in carried:
            inner["ext", k] = b.input(f"carry.{k}", types[entry.initial], "carry")
        xs: list[str] = []
        for name, place in self.first.params.items():
            if any(r[0] == "param" and r[1:] == place for r in refs):
                path = self.stacked[place]
                inner["param", *place] = b.input(path, types[name], "xs", path)
                xs.append(path)
        if side:
            for ref in saved:
                name = self._saved_name(ref)
                inner[ref] = b.input(name, self._saved_type(ref), "xs")
                xs.append(name)
        consts: list[str] = []
        for k, entry in enumerate(entries):
            if not isinstance(entry, Carried):
                inner["ext", k] = b.input(entry.value, types[entry.value], "const")
                consts.append(entry.value)
        if side:
            for k, entry in enumerate(self.wiring.forward):
                if not isinstance(entry, Carried) and ("entered", k) in refs:
                    if entry.value not in b.types:
                        b.input(entry.value, types[entry.value], "const")
                        consts.append(entry.value)
                    inner["entered", k] = entry.value
        body_names: dict[int, str] = {}
        for node in nodes:
            operands: list[str] = []
            for ref in self.first.refs[node.outputs[0]]:
                key = ref[:2] if ref[0] == "ext" else ref
                operands.append(body_names[ref[1]] if ref[0] == "local" else inner[key])
            made = b.add_node(
                node.op,
                operands,
                dict(node.attrs),
                outputs=[f"v{v}" if v in b.types else v for v in node.outputs],
                source=self._source(node.source),
                body=node.body,
            )
            for original, name in zip(node.outputs, made, strict=True):
                body_names[self._local(self.first, side)[original]] = name
        for k, entry in carried:
            b.output(body_names[entry.source], "carry", f"carry.{k}")
        ys: list[str] = []
        if not side:
            for ref in saved:
                value = inner["ext", ref[1]] if ref[0] == "entered" else body_names[ref[1]]
                b.output(value, "ys", self._saved_name(ref))
                ys.append(self._saved_name(ref))
                self.types[ys[-1]] = self._stack(self._saved_type(ref))
        self._export(b, side, wanted, dict(carried), body_names, names, ys)
        last = self.steps[0] if side else self.steps[-1]
        finals = [self._final(last, side, entry.source) for _, entry in carried]
        for name, (_, entry) in zip(finals, carried, strict=True):
            self.types[name] = types[entry.initial]
        body = b.build()
        attrs = {"length": self.group.count, "carry": len(carried), "xs": len(xs), "reverse": side}
        return Node(
            "scan",
            (*(e.initial for _, e in carried), *xs, *consts),
            (*finals, *ys),
            dict(attrs),
            Source(module=self.group.pattern(0) if self.group.period == 1 else self.group.prefix),
            body,
        )

    def _final(self, last: Step, side: bool, number: int) -> str:
        """The carry after the last step keeps the name that value had."""
        return next(v for v, n in self._local(last, side).items() if n == number)

    def _saved_name(self, ref: Ref) -> str:
        return f"saved.{self.group.prefix}.{self.group.start}.{self._saved_value(ref)}"

    def _saved_type(self, ref: Ref) -> TensorType:
        return self.program.types[self._saved_value(ref)]

    def _saved_value(self, ref: Ref) -> str:
        number: int = ref[1]
        return self.first.entered[number] if ref[0] == "entered" else self.names[False][number]

    def _export(
        self,
        b: Builder,
        side: bool,
        wanted: Mapping[int, list[tuple[int, str]]],
        carried: Mapping[int, Carried],
        body_names: Mapping[int, str],
        names: Mapping[int, str],
        ys: list[str],
    ) -> None:
        """Values read outside: gradients and others are stacked; the last carry is at hand."""
        count = len(self.steps)
        final_step = 0 if side else count - 1
        finals = {entry.source for entry in carried.values()}
        for number, uses in wanted.items():
            owned = [v for _, v in uses if v in self.grads]
            others = [
                (i, v)
                for i, v in uses
                if v not in owned and not (i == final_step and number in finals)
            ]
            if not owned and not others:
                continue
            if owned and len(owned) != count:
                self.failed = True
                return
            name = f"stack.{self.group.prefix}.{self.group.start}.{names[number]}"
            if owned:
                places = self.grads[owned[0]]
                name = f"grad.{self.stacked[places[0]]}"
                self.stacked_grads |= dict.fromkeys(places, name)
            b.output(body_names[number], "ys", name)
            ys.append(name)
            self.types[name] = self._stack(b.types[body_names[number]])
            for i, value in others:
                self._pick(name, i, value)

    def _own_grads(self) -> dict[str, list[tuple[int, str]]]:
        """The places of the parameters that a value is the gradient of: several where they are
        added to the same."""
        values = {o.path: o.value for o in self.program.outputs if o.role == "grad"}
        found: dict[str, list[tuple[int, str]]] = {}
        for step in self.steps:
            for name, place in step.params.items():
                value = values.get(self.program.input(name).path)
                if value in step.local_backward:
                    found.setdefault(value, []).append(place)
        return found

    def _pick(self, stacked: str, step: int, value: str) -> None:
        """Define `value` as one entry of a stack. Steps that were not traced cannot be named."""
        count, traced = self.group.count, len(self.steps)
        if count != traced and step not in (0, traced - 1):
            self.failed = True
            return
        index = step if step == 0 else count - (traced - step)
        whole = self.types[stacked]
        line = f"{value}.line"
        self.types[line] = TensorType((1, *whole.shape[1:]), whole.dtype)
        source = Source(module=self.group.prefix)
        attrs = {"dim": 0, "start": index, "stop": index + 1, "step": 1}
        self.extra.append((0, Node("slice", (stacked,), (line,), dict(attrs), source)))
        reshape = Node("reshape", (line,), (value,), {"shape": whole.shape[1:]}, source)
        self.extra.append((0, reshape))

    def _inputs(self) -> tuple[Input, ...]:
        """Stacked parameters stand where the first of them stood."""
        place_of = {n: place for s in self.steps for n, place in s.params.items()}
        seen: set[tuple[int, str]] = set()
        out: list[Input] = []
        for item in self.program.inputs:
            place = place_of.get(item.name)
            if place is None:
                out.append(item)
            elif place not in seen:
                seen.add(place)
                path = self.stacked[place]
                out.append(Input(path, self.types[path], "param", path))
        return tuple(out)

    def _outputs(self) -> tuple[Output, ...] | None:
        """Gradients of stacked parameters are one output each."""
        places = {
            self.program.input(n).path: place for s in self.steps for n, place in s.params.items()
        }
        seen: set[tuple[int, str]] = set()
        out: list[Output] = []
        for item in self.program.outputs:
            place = places.get(item.path) if item.role == "grad" else None
            if place is None:
                out.append(item)
                continue
            if place not in seen:
                seen.add(place)
                name = self.stacked_grads.get(place)
                if name is None:
                    return None
                out.append(Output(name, "grad", self.stacked[place]))
        return tuple(out)
