"""Which piece of which tensor of the model each tensor of a rank is, from what processes of a run
say of themselves: the rules of the contract, without a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardproof.agent.check.contract import Statements, decide
from shardproof.agent.check.parts import read_parts
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.execute.run.running import UnlikeError
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.pairing import (
    before_names,
    pair_kept,
    pair_names,
    pair_names_of_arguments,
)
from shardproof.synthesis.frontends.torch.ranks.stated import (
    LayoutLine,
    RowOrder,
    layout_for,
    order_of,
)
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.refute.scatter import cut

Said = Mapping[str, Any]
"""What a process says, as JSON."""


@dataclass
class Pieces:
    """Answers the processes of a run."""

    mesh: Mesh
    stated: Statements = field(default_factory=Statements)
    names: tuple[tuple[str, str], ...] = ()
    """As `--param`."""
    skipped: Sequence[str] = ()
    summed: bool = False
    """Whether the loss is the sum of those of the ranks, not their mean."""
    inputs: dict[str, Layout] = field(default_factory=dict[str, Layout])
    staged: set[int] = field(default_factory=set[int])
    """Ranks that have stages of a pipeline: of these, the last alone has outputs."""

    def given(self, described: Sequence[Said], inputs: Sequence[Said]) -> Said:
        """What each tensor of each rank is a piece of. Raises UnlikeError where that is not clear
        or does not fit."""
        try:
            return self._given(described, inputs)
        except (InputError, CaptureError) as problem:
            raise UnlikeError(str(problem)) from None

    def outputs(self, said: Sequence[Sequence[Said]]) -> list[Said]:
        """The same of outputs, in their order."""
        try:
            return self._outputs(said)
        except (InputError, CaptureError) as problem:
            raise UnlikeError(str(problem)) from None

    def _given(self, described: Sequence[Said], inputs: Sequence[Said]) -> Said:
        one, *ranks = described
        self.staged = {number for number, rank in enumerate(ranks) if rank["stages"]}
        coords = self.mesh.coords()
        whole: Said = one["parameters"]
        parameters: list[dict[str, Any]] = []
        buffers: list[dict[str, Any]] = []
        for rank, at in zip(ranks, coords, strict=True):
            own = list(rank["parameters"])
            inside = rank["inside"] or before_names(own, {*whole, *one["ties"]})
            paired = pair_names(own, list(whole), self.names, one["ties"], inside, at)
            parameters.append(
                {
                    name: {"name": to, "shape": whole[to]["shape"], "ones": whole[to]["ones"]}
                    for name, to in paired.items()
                }
            )
            kept = pair_kept(list(rank["buffers"]), list(one["buffers"]), self.names, inside, at)
            lines: dict[str, Any] = {}
            for name, to in kept.items():
                local = tuple(rank["buffers"][name]["shape"])
                shape = tuple(one["buffers"][to]["shape"])
                is_filled = to in one["filled"]
                if is_filled or local == shape:
                    placed = self._piece("buffer", to, shape, local, at) if is_filled else None
                    lines[name] = {"name": to, "shape": shape, "piece": placed, "filled": is_filled}
            buffers.append(lines)
        for number, at in enumerate(coords):
            for name, line in parameters[number].items():
                local = tuple(ranks[number]["parameters"][name]["shape"])
                shape = tuple(line["shape"])
                line["piece"] = self._piece("parameter", line["name"], shape, local, at)
        self.inputs = self.laid_out(inputs)
        first = ranks[0]
        arguments = pair_names_of_arguments(
            list(self.inputs), first["arguments"], first["any"], first["class"]
        )
        said = self.stated.inputs
        cuts = [
            {n: cut_out(laid, at, self._order(said, n, laid)) for n, laid in self.inputs.items()}
            for at in coords
        ]
        return {
            "parameters": parameters,
            "buffers": buffers,
            "inputs": cuts,
            "arguments": arguments,
        }

    @property
    def data_dims(self) -> frozenset[str]:
        """The mesh dims over which a loss is that of all ranks: those that split an input."""
        return frozenset(d for layout in self.inputs.values() for d in layout.sharded)

    def laid_out(self, inputs: Sequence[Said]) -> dict[str, Layout]:
        """How each input is laid out: as is stated, or whole on every rank."""
        shapes = {item["name"]: tuple(item["shape"]) for item in inputs}
        return {
            name: layout_for(self.stated.inputs, name, shape, self.mesh) or Layout.replicate(shape)
            for name, shape in shapes.items()
        }

    def output(
        self, name: str, whole: tuple[int, ...], local: tuple[int, ...], at: Mapping[str, int]
    ) -> Said | None:
        """The piece of an output that a rank returns."""
        return self._piece("output", name, whole, local, at)

    def _piece(
        self,
        kind: str,
        name: str,
        whole: tuple[int, ...],
        local: tuple[int, ...],
        at: Mapping[str, int],
    ) -> Said | None:
        lines = self.stated.outputs if kind == "output" else self.stated.params
        for line in lines:
            parts = read_parts(line) if line.fits(name) else None
            if parts is None:
                continue
            made: list[Said] = []
            start = 0
            for text, extent in zip(parts.texts, parts.wholes, strict=True):
                shape = (*whole[: parts.dim], extent, *whole[parts.dim + 1 :])
                layout = layout_for([LayoutLine(name, text, line.where)], name, shape, self.mesh)
                assert layout is not None
                made.append({"start": start, "extent": extent, "piece": cut_out(layout, at)})
                start += extent
            return {"dim": parts.dim, "parts": made}
        option = "--output-layout" if kind == "output" else "--layout"
        layout = decide(kind, name, whole, local, None, lines, self.mesh, option).layout
        return cut_out(layout, at, self._order(lines, name, layout) if kind == "output" else None)

    def _order(self, lines: Sequence[LayoutLine], name: str, layout: Layout) -> RowOrder | None:
        return order_of(lines, name, len(layout.dims), self.mesh)

    def _outputs(self, said: Sequence[Sequence[Said]]) -> list[Said]:
        one, *ranks = said
        out: list[Said] = []
        for number, rank in enumerate(ranks):
            if len(rank) != len(one) and (rank or number not in self.staged or not any(ranks)):
                raise UnlikeError(
                    f"the parallel module returns {len(rank)} tensors, the model {len(one)}"
                )
        split = self.data_dims
        for number, line in enumerate(one):
            name, whole = line["name"], tuple(line["shape"])
            lines = [s for s in self.stated.outputs if s.fits(name)]
            pieces: list[Said | None] = []
            pending: list[str] = []
            for rank, at in zip(ranks, self.mesh.coords(), strict=True):
                if name in self.skipped or not rank:
                    pieces.append(None)
                    continue
                local = tuple(rank[number]["shape"])
                stated = layout_for([s for s in lines if not s.over], name, whole, self.mesh)
                if stated is not None and stated.partial:
                    if {fold for _, fold in stated.partial} != {"sum"}:
                        raise UnlikeError(f"the output {name} is a pending fold that is not a sum")
                    pending = [n for n, _ in stated.partial]
                    order = self._order(lines, name, stated)
                    pieces.append(cut_out(Layout(stated.dims), at, order))
                    continue
                pieces.append(self.output(name, whole, local, at))
            out.append(
                {
                    **line,
                    "pieces": pieces,
                    "sum": pending,
                    "skipped": name in self.skipped,
                    "over": [n for n in self.mesh.names if n in split] if not lines else [],
                    "summed": self.summed,
                }
            )
        return out


def cut_out(layout: Layout, at: Mapping[str, int], order: RowOrder | None = None) -> Said | None:
    """How a rank cuts its piece out of the whole; None where it holds all of it. Of a zigzag, that
    is a piece of each half, of the second counted from its end."""
    if not layout.sharded:
        return None
    if order is not None:
        dim, name = order.dim, order.mesh_dim
        own, rest = layout.dims[dim]
        if order.kind == "striped":
            return cut_out(layout.with_dim(dim, (rest, own)), at)
        half = layout.with_dim(dim, (own, Atom(rest.size // 2)))
        extent = own.size * rest.size // 2
        ends = (at, {**at, name: own.size - 1 - at[name]})
        parts = enumerate(cut_out(half, end) for end in ends)
        return {
            "dim": dim,
            "parts": [{"start": i * extent, "extent": extent, "piece": p} for i, p in parts],
        }
    sizes, index = cut(layout, at)
    return {"sizes": sizes, "index": index, "shape": layout.local_shape}
