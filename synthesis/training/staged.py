"""A captured pass on a pipeline: each stage holds its layers, and passes on what it computes.

What reads no parameter (masks, positions) every stage computes for itself. What reads parameters
alone is computed on every stage that needs it. All else follows the layers: before the first block
on the first stage, after the last on the last, backward on the stage whose gradient it is. A value
that another stage reads is sent to it.
"""

from dataclasses import dataclass, field, replace

from shardproof.synthesis.training.layers import Layers, Run, layers
from shardproof.synthesis.training.step import TrainingError
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout, whole
from shardproof.verifier.kernel.peeling import Peel, peeled
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node, Program, Timing, live
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.kernel.program.where import Where, ranks_where
from shardproof.verifier.kernel.rank_sets import regions

PIPELINE = "pp"


def staged(
    sequential: Program, distributed: Program, contract: Contract, stages: int
) -> tuple[Program, Program, Contract]:
    """The two programs of a pass and their contract, with the layers on `stages` stages.

    The mesh gets an outer dim `pp`. A stacked parameter is an input a stage, `stages.K.PATH`, in
    both programs, and so is its gradient. The loss is given on the last stage.

    Raises:
        TrainingError: a pass that cannot be cut.
    """
    cut = layers(sequential, stages)
    one = _apart(sequential, cut)
    mine = layers(distributed, stages)
    if mine.params != cut.params:
        raise TrainingError("the plan repeats other layers than the model")
    whole_pass = live(_looked_through(_cut(_apart(distributed, mine), mine)))
    many = _Placing(whole_pass, mine, stages).placed()
    return one, many, _contract(contract, cut, many)


def _pieces(runs: tuple[Run, ...]) -> bool:
    return len(runs) > 1


def _name(value: str, run: Run) -> str:
    return f"{value}.s{run.stage}"


def _path(path: str, run: Run) -> str:
    return f"stages.{run.stage}.{path}"


def _apart(program: Program, cut: Layers) -> Program:
    """Stacked parameters as inputs of stages, joined before they are read; gradients cut alike."""
    b = Builder(program.name, program.mesh)
    joins: dict[str, list[str]] = {}
    runs_of = {i.path: cut.params.get(i.name, ()) for i in program.inputs}
    for item in program.inputs:
        runs = cut.params.get(item.name, ())
        if not _pieces(runs):
            b.input(item.name, item.type, item.role, item.path, item.where)
            continue
        for run in runs:
            kind = TensorType((run.stop - run.start, *item.type.shape[1:]), item.type.dtype)
            b.input(_name(item.name, run), kind, item.role, _path(item.path, run), item.where)
        joins[item.name] = [_name(item.name, run) for run in runs]
    b.reserve(program.types)
    for name, parts in joins.items():
        b.add_node("concat", parts, {"dim": 0}, outputs=[name])
    for node in program.nodes:
        b.append(node)
    for out in program.outputs:
        runs = runs_of.get(out.path, ()) if out.role == "grad" else ()
        if not _pieces(runs):
            b.output(out.value, out.role, out.path)
            continue
        for run in runs:
            part = b.add("slice", out.value, dim=0, start=run.start, stop=run.stop)
            b.output(part, "grad", _path(out.path, run))
    return b.build()


def _cut(program: Program, cut: Layers) -> Program:
    peels = [
        Peel(block, tuple((r.start, r.stop) for r in runs))
        for block, runs in cut.blocks.items()
        if _pieces(runs)
    ]
    return peeled(program, peels)


def _looked_through(program: Program) -> Program:
    """Slices of what was joined are the parts that were joined."""
    joined: dict[str, dict[tuple[int, int], str]] = {}
    names: dict[str, str] = {}
    nodes: list[Node] = []
    for old in program.nodes:
        node = replace(old, inputs=tuple(names.get(v, v) for v in old.inputs))
        if node.op == "concat" and node.attrs.get("dim") == 0:
            at, parts = 0, dict[tuple[int, int], str]()
            for part in node.inputs:
                extent = program.types[part].shape[0]
                parts[at, at + extent] = part
                at += extent
            joined[node.outputs[0]] = parts
        if node.op == "slice" and node.attrs.get("dim") == 0 and node.attrs.get("step", 1) == 1:
            start, stop = node.number("start"), node.number("stop")
            found = joined.get(node.inputs[0], {}).get((start, stop))
            if found is not None:
                names[node.outputs[0]] = found
                continue
        nodes.append(node)
    outputs = tuple(replace(o, value=names.get(o.value, o.value)) for o in program.outputs)
    return replace(program, nodes=tuple(nodes), outputs=outputs)


@dataclass
class _Placing:
    """A pass cut at the ends of stages, and the stages of its nodes."""

    program: Program
    cut: Layers
    stages: int
    known: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """The stages that hold a value; values that are not here are everywhere."""
    sent: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])

    def placed(self) -> Program:
        """The program on the mesh with stages."""
        program = self.program
        self._assign()
        mesh = Mesh(((PIPELINE, self.stages), *program.mesh.dims))
        b = Builder(program.name, mesh)
        b.reserve(program.types)
        bodies: dict[int, Program] = {}
        for item in program.inputs:
            where = ranks_where(mesh, self._on(item.name))
            b.input(item.name, item.type, item.role, item.path, where)
        for node in program.nodes:
            stages = self.known.get(node.outputs[0], ())
            inputs = [self._here(b, v, stages) for v in node.inputs]
            with b.on(**self._on(node.outputs[0])):
                b.add_node(
                    node.op, inputs, node.attrs, outputs=node.outputs, source=node.source,
                    body=_on_mesh(node.body, mesh, bodies), timing=node.timing,
                )  # fmt: skip
        for out in program.outputs:
            b.output(out.value, out.role, out.path)
        return b.build()

    def _on(self, value: str) -> dict[str, tuple[int, ...]]:
        stages = self.known.get(value, ())
        return {PIPELINE: stages} if stages else {}

    def _here(self, b: Builder, value: str, stages: tuple[int, ...]) -> str:
        """The value on these stages; sent to them where it lies elsewhere."""
        held = self.known.get(value, ())
        if not held or set(stages) <= set(held):
            return value
        if len(stages) != 1 or len(held) != 1:
            raise TrainingError(f"%{value} of stages {held} is read on stages {stages}")
        (source,), (target,) = held, stages
        if (value, target) not in self.sent:
            ends = {"mesh_dim": PIPELINE, "src": source, "dst": target}
            with b.on(**{PIPELINE: source}):
                (message,) = b.add_node(
                    "send", [value], {**ends}, outputs=[f"sent.{value}.to{target}"],
                    timing=Timing(asynchronous=True),
                )  # fmt: skip
            with b.on(**{PIPELINE: target}):
                self.sent[value, target] = b.add("recv", message, **ends)
        return self.sent[value, target]

    def _assign(self) -> None:
        blocks = {
            f"{block}.{r.start}to{r.stop}" if _pieces(runs) else block: r.stage
            for block, runs in self.cut.blocks.items()
            for r in runs
        }
        idle = {i.name for i in self.program.inputs if i.role != "param"}
        backward: set[str] = set()
        for node in self.program.nodes:
            stage = blocks.get(node.outputs[0])
            if stage is None and idle.issuperset(node.inputs):
                idle.update(node.outputs)
                continue
            found = {s for v in node.inputs for s in self.known.get(v, ())}
            behind = [v for v in node.inputs if v in backward]
            if stage is None and behind:
                stage = min(s for v in behind for s in self.known[v])
            elif stage is None and found:
                stage = max(found)
            if behind or (node.body is not None and node.attrs.get("reverse")):
                backward.update(node.outputs)
            if stage is not None:
                self.known |= dict.fromkeys(node.outputs, (stage,))
        settled = idle | set(self.known)
        for node in reversed(self.program.nodes):
            mine = self.known.get(node.outputs[0], ())
            for value in node.inputs:
                if value not in settled:
                    self.known[value] = tuple(sorted({*self.known.get(value, ()), *mine}))
        for item in self.program.inputs:
            if item.role == "param" and item.name not in self.known:
                raise TrainingError(f"{item.path} is read by no stage")


def _on_mesh(body: Program | None, mesh: Mesh, known: dict[int, Program]) -> Program | None:
    """The block on another mesh; the same one for blocks that are the same."""
    if body is None:
        return None
    if id(body) not in known:
        nodes = [replace(n, body=_on_mesh(n.body, mesh, known)) for n in body.nodes]
        known[id(body)] = replace(body, nodes=tuple(nodes), mesh=mesh)
    return known[id(body)]


def _contract(contract: Contract, cut: Layers, many: Program) -> Contract:
    inputs: dict[str, Layout] = {}
    for name, layout in contract.inputs.items():
        runs = cut.params.get(name, ())
        if not _pieces(runs):
            inputs[name] = layout
        pieces = runs if _pieces(runs) else ()
        inputs |= {_name(name, r): _stacked(layout, r.stop - r.start) for r in pieces}
    outputs: dict[str, Layout] = {}
    by_path = {key.partition(":")[2]: layout for key, layout in contract.outputs.items()}
    places = regions(many).values
    wanted: dict[str, Where] = {}
    for out in many.outputs:
        key = output_key(out)
        if key in contract.outputs:
            outputs[key] = contract.outputs[key]
        else:
            _, _, path = out.path.split(".", 2)
            outputs[key] = _stacked(by_path[path], many.types[out.value].shape[0])
        if places[out.value]:
            wanted[key] = places[out.value]
    held = {i.name: i.where for i in many.inputs if i.where}
    return replace(contract, inputs=inputs, outputs=outputs, held=held, wanted=wanted)


def _stacked(layout: Layout, extent: int) -> Layout:
    """The layout with another number of layers.

    Raises:
        TrainingError: layers that the plan splits.
    """
    if any(atom.mesh_dim for atom in layout.dims[0]):
        raise TrainingError("the plan splits layers over the mesh; stages do")
    return Layout((whole(extent), *layout.dims[1:]), layout.partial)
