"""The whole training step of a captured model: micro-batches, reduction, clipping, AdamW.

The plan of one forward and backward pass (`synthesis.planner`) is run on each micro-batch, its
gradients are averaged over them, clipped by their global norm, and every parameter is stepped
where it lies. One device does the same with whole tensors, and is what the ranks are held against.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from shardproof.synthesis.training import optimizer
from shardproof.synthesis.training.microbatch import added, include, repeated, row
from shardproof.synthesis.training.optimizer import Optimizer, State, adamw, clip_factor, squares
from shardproof.synthesis.training.staged import PIPELINE
from shardproof.synthesis.training.step import Step, TrainingError
from shardproof.verifier.kernel.contract import Balanced, Contract, output_key
from shardproof.verifier.kernel.layout import Layout, whole
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Input, Program
from shardproof.verifier.kernel.program.types import Attr, TensorType
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where


def captured_step(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    micro_batches: int,
    opt: Optimizer | None = None,
    name: str = "step",
) -> Step:
    """The step of a model from the two programs of one pass, which give its loss and gradients.

    Inputs get a leading dim of micro-batches; `NAME.first` and `NAME.second` are moments. Outputs
    are the mean loss and, for each parameter, `PATH.new`, `PATH.first.new`, `PATH.second.new`.
    Micro-batches are a repeated block, or written out where the contract assumes balanced parts.

    Raises:
        TrainingError: no loss or gradient, or a gradient laid out otherwise than its parameter.
    """
    if micro_batches < 1:
        raise TrainingError(f"micro_batches = {micro_batches}; expected 1 or more")
    opt = opt or Optimizer()
    one = _Pass(sequential, micro_batches, contract.inputs)
    one.check(contract)
    return Step(
        name,
        one.step(sequential, opt, bool(contract.balanced), whole_tensors=True),
        one.step(distributed, opt, bool(contract.balanced), whole_tensors=False),
        _contract(one, contract, micro_batches),
    )


class _Pass:
    """What both programs have in common: which inputs are parameters, and what is learnt."""

    def __init__(self, program: Program, micro_batches: int, layouts: Mapping[str, Layout]) -> None:
        self.program, self.count, self.layouts = program, micro_batches, layouts
        self.grads = {o.path for o in program.outputs if o.role == "grad"}
        self.losses = [o for o in program.outputs if o.role == "loss"]
        self.learnt = [i for i in program.inputs if i.role == "param" and i.path in self.grads]
        self.batch = [i.name for i in program.inputs if i.role == "input"]

    def check(self, contract: Contract) -> None:
        """Raises TrainingError."""
        if len(self.losses) != 1:
            raise TrainingError(f"{len(self.losses)} losses; a step needs one")
        if not self.learnt:
            raise TrainingError("no gradients; capture the model with its backward pass")
        for item in self.learnt:
            held, made = contract.inputs[item.name], contract.outputs[f"grad:{item.path}"]
            if held != made:
                raise TrainingError(
                    f"{item.path} lies as {held}, its gradient as {made}; they must be the same"
                )

    def step(
        self, program: Program, opt: Optimizer, apart: bool, *, whole_tensors: bool
    ) -> Program:
        """The step around one of the two programs."""
        b = Builder("step", program.mesh)
        for item in program.inputs:
            shape = item.type.shape
            if item.name in self.batch:
                shape = (self.count, *shape)
            b.input(item.name, TensorType(shape, item.type.dtype), item.role, item.path, item.where)
        optimizer.scalars(b)
        types = {item.name: item for item in program.inputs}
        for item in self.learnt:
            for moment in ("first", "second"):
                kind = TensorType(types[item.name].type.shape)
                name, path = f"{item.name}.{moment}", f"{item.path}.{moment}"
                b.input(name, kind, "input", path, types[item.name].where)
        learning = _learning(program)
        if apart:
            sums = self._written_out(b, learning)
        else:
            sums = repeated(b, learning, self.count, self.batch)
        share = Fraction(1, self.count)
        loss = b.add("mul_scalar", sums[output_key(self.losses[0])], value=share)
        b.output(_everywhere(b, loss), "loss", self.losses[0].path)
        means = {
            i.name: b.add("mul_scalar", sums[f"grad:{i.path}"], value=share) for i in self.learnt
        }
        norm2 = self._norm_squared(b, means, {} if whole_tensors else self.layouts)
        for item in self.learnt:
            means[item.name] = _moved(b, means[item.name], types[item.name].where)
        factor = clip_factor(b, norm2, opt)
        for item in self.learnt:
            state = State(item.name, means[item.name], f"{item.name}.first", f"{item.name}.second")
            new, first, second = adamw(b, state, factor, opt, decay=_decays(item))
            b.output(new, "output", f"{item.path}.new")
            b.output(first, "output", f"{item.path}.first.new")
            b.output(second, "output", f"{item.path}.second.new")
        return b.build()

    def _written_out(self, b: Builder, program: Program) -> dict[str, str]:
        sums: dict[str, str] = {}
        names = [i.name for i in program.inputs]
        for m in range(self.count):
            bound = {n: row(b, n, m) if n in self.batch else n for n in names}
            added(b, sums, include(b, program, bound, _prefix(m)))
        return sums

    def _norm_squared(
        self, b: Builder, grads: Mapping[str, str], layouts: Mapping[str, Layout]
    ) -> str:
        """Each element of each whole gradient once: pieces are summed over the dims that split."""
        groups: dict[tuple[Where, tuple[str, ...]], list[str]] = defaultdict(list)
        for item in self.learnt:
            split = layouts[item.name].sharded if item.name in layouts else ()
            order = tuple(n for n in b.mesh.names if n in split)
            groups[b.held[grads[item.name]], order].append(grads[item.name])
        totals: dict[Where, str] = {}
        for (where, names), values in groups.items():
            share = squares(b, values)
            if names:
                share = b.add("all_reduce", share, mesh_dim=over(names), reduce="sum")
            totals[where] = b.add("add", totals[where], share) if where in totals else share
        if EVERYWHERE in totals:
            return totals[EVERYWHERE]
        return b.add(
            "all_reduce", b.add("merge", *totals.values()), mesh_dim=PIPELINE, reduce="sum"
        )


def _everywhere(b: Builder, value: str) -> str:
    """What one stage has, on all of them."""
    stages = dict(b.held[value]).get(PIPELINE)
    if stages is None:
        return value
    return b.add("broadcast", value, mesh_dim=PIPELINE, index=stages[0])


def _moved(b: Builder, value: str, where: Where) -> str:
    """What one stage has, on these."""
    if b.held[value] == where:
        return value
    whole_line = _everywhere(b, value)
    return whole_line if not where else b.add_node("only", [whole_line], where=where)[0]


def _learning(program: Program) -> Program:
    """The program with its loss and gradients as its only outputs."""
    outputs = tuple(o for o in program.outputs if o.role in ("loss", "grad"))
    return replace(program, outputs=outputs)


def _prefix(micro_batch: int) -> str:
    return f"mb{micro_batch}."


def _decays(item: Input) -> bool:
    """Weight decay is for matrices; layers of a repeated block are stacked in leading dims."""
    stacked = sum(part == "*" for part in item.path.split("."))
    return len(item.type.shape) - stacked > 1


def _contract(found: _Pass, contract: Contract, count: int) -> Contract:
    inputs: dict[str, Layout] = {}
    for item in found.program.inputs:
        layout = contract.inputs[item.name]
        if item.name in found.batch:
            layout = Layout((whole(count), *layout.dims), layout.partial)
        inputs[item.name] = layout
    for name in optimizer.SCALARS:
        inputs[name] = Layout.replicate(())
    held = dict(contract.held)
    wanted: dict[str, Where] = {}
    outputs = {output_key(found.losses[0]): contract.outputs[output_key(found.losses[0])]}
    for item in found.learnt:
        layout = contract.inputs[item.name]
        moments = [f"{item.name}.{moment}" for moment in ("first", "second")]
        endings = [f"output:{item.path}.{e}" for e in ("new", "first.new", "second.new")]
        inputs |= dict.fromkeys(moments, layout)
        outputs |= dict.fromkeys(endings, layout)
        if item.name in contract.held:
            held |= dict.fromkeys(moments, contract.held[item.name])
            wanted |= dict.fromkeys(endings, contract.held[item.name])
    balanced: list[Balanced] = []
    for item in contract.balanced:
        balanced += [
            replace(item, value=f"{_prefix(m)}{item.value}", why=f"{item.why}{each}")
            for m in range(count)
            for each in (f" in micro-batch {m}" if count > 1 else "",)
        ]
    return Contract(inputs, outputs, tuple(balanced), contract.assumptions, held, wanted)


def over(names: Sequence[str]) -> Attr:
    """The `mesh_dim` attribute for one or several mesh dims."""
    return names[0] if len(names) == 1 else tuple(names)
