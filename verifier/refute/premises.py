"""On which inputs a contract speaks: those on which what it assumes to be balanced is.

A sum over the batch has equal parts along a mesh dim where it is the same sum whichever rank's rows
all ranks are given. Programs that differ on other inputs only are not refuted.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from math import prod

import numpy as np

from shardproof.verifier.analysis.sentinels import marks
from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.program import Output, Program, live
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.refute.evaluate import Values, evaluate

MAX_ELEMENTS = 20_000_000
"""Numbers worked out at most to judge one set of inputs."""
SHARES = (0.5, 0.25, *(0.0,) * 6)
"""Which parts of an input are set back to what was drawn, one after the other; 0: one number."""
NEAR = 1e-12
"""Relative difference of parts that are rounded sums of the same numbers."""


class Premises:
    """What a contract assumes of the inputs of a one-device program."""

    def __init__(
        self,
        sequential: Program,
        contract: Contract,
        mesh: Mesh,
        fixed: Collection[str] = (),
    ) -> None:
        """`fixed` names inputs whose values are given, and may not be changed."""
        sequential = inline(sequential) if contract.balanced else sequential
        self.mesh, self.layouts = mesh, contract.inputs
        self.balanced = [
            b
            for b in contract.balanced
            if b.value in sequential.types
            and all(name in mesh for name in b.mesh_dims)
            and self._ranks(b.mesh_dims) > 1
        ]
        if not self.balanced:
            return
        ends = dict.fromkeys(b.value for b in self.balanced)
        self.sums = live(replace(sequential, outputs=tuple(Output(v) for v in ends)))
        read = {v for node in self.sums.nodes for v in node.inputs} | ends.keys()
        self.rows = {
            b.mesh_dims: [
                i.name
                for i in self.sums.inputs
                if i.name in read
                and i.role != "param"
                and self.layouts[i.name].sharded.issuperset(b.mesh_dims)
            ]
            for b in self.balanced
        }
        """By mesh dims, the inputs split along them that the sums depend on."""
        self.fixed, self.marks = frozenset(fixed), marks(sequential)

    def hold(self, inputs: Mapping[str, Array], domain: Domain) -> bool:
        """Whether the contract speaks of these inputs of the one-device program."""
        if not self.balanced:
            return True
        if not self._judged():
            return False
        whole = evaluate(self.sums, self._given(inputs), domain)
        for over in self.rows:
            for at in range(self._ranks(over)):
                other = self._counted(inputs, over, at, domain)
                if not all(_same(whole[v], part, domain) for v, part in other.items()):
                    return False
        return True

    def met(
        self, inputs: Mapping[str, Array], domain: Domain, rng: np.random.Generator
    ) -> dict[str, Array] | None:
        """These inputs, changed no more than the contract asks for; None where none are found."""
        if not self.balanced:
            return dict(inputs)
        with np.errstate(all="ignore"):
            for count, tried in enumerate(
                self._changed(inputs, domain, rng) if self._judged() else ()
            ):
                if self.hold(tried, domain):
                    return self._restored(tried, inputs, domain, rng) if count else tried
        return None

    def _restored(
        self,
        inputs: dict[str, Array],
        drawn: Mapping[str, Array],
        domain: Domain,
        rng: np.random.Generator,
    ) -> dict[str, Array]:
        """The inputs with numbers as they were drawn wherever that is tried and changes no count:
        ranks that all hold the same numbers hide what is wrong."""
        for share in SHARES:
            for name in dict.fromkeys(n for names in self.rows.values() for n in names):
                chosen = rng.random(inputs[name].shape) < share
                if not share and chosen.size:
                    chosen.reshape(-1)[rng.integers(chosen.size)] = True
                other = np.where(chosen, drawn[name], inputs[name])
                if not np.array_equal(other, inputs[name]):
                    trial = {**inputs, name: other}
                    inputs = trial if self.hold(trial, domain) else inputs
        return inputs

    def _judged(self) -> bool:
        runs = 1 + sum(map(self._ranks, self.rows))
        sizes = (s.types[v].size for s, node in self.sums.walk() for v in node.outputs)
        return all(self.rows.values()) and runs * sum(sizes) <= MAX_ELEMENTS

    def _changed(
        self, inputs: Mapping[str, Array], domain: Domain, rng: np.random.Generator
    ) -> Iterator[dict[str, Array]]:
        """The inputs, and others in which the ranks have more and more in common."""
        yield dict(inputs)
        sources = {d: self._telling(inputs, d, domain) for d in self.rows}
        for own, moved in ((True, True), (True, False), (False, True), (False, False)):
            out = dict(inputs)
            for over, names in self.rows.items():
                source = sources[over]
                orders: dict[tuple[int, int], Array] = {}
                for name in names:
                    if name in self.fixed:
                        continue
                    array, axes, along = _blocks(out[name], self.layouts[name], over)
                    blocks = [np.array(array[source]) for _ in array]
                    if own:
                        pairs = zip(blocks, array, strict=True)
                        blocks = [self._own(name, block, given) for block, given in pairs]
                    if moved and along is not None:
                        extent = blocks[0].shape[along]
                        for at, block in enumerate(blocks):
                            if (at, extent) not in orders:
                                orders[at, extent] = rng.permutation(extent)
                            blocks[at] = block.take(orders[at, extent], axis=along)
                    out[name] = _put_back(np.stack(blocks), axes, out[name].shape)
            yield out

    def _ranks(self, over: tuple[str, ...]) -> int:
        return prod(self.mesh[name] for name in over)

    def _telling(self, inputs: Mapping[str, Array], over: tuple[str, ...], domain: Domain) -> int:
        """The rank along mesh dims whose rows count least, with no sum that is 0 if some
        rows have none: what is left out, and divided by, shows most there."""

        def least(at: int) -> tuple[bool, float]:
            found = self._counted(inputs, over, at, domain).values()
            parts = [np.abs(np.asarray(f, dtype=np.float64)) for f in found]
            return any(not p.all() for p in parts), float(sum(p.sum() for p in parts))

        return min(range(self._ranks(over)), key=least)

    def _given(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {i.name: inputs[i.name] for i in self.sums.inputs}

    def _counted(
        self, inputs: Mapping[str, Array], over: tuple[str, ...], at: int, domain: Domain
    ) -> Values:
        """The sums over the batch if every rank had the rows of one of those along mesh dims."""
        given = self._given(inputs)
        for name in self.rows[over]:
            blocks, axes, _ = _blocks(given[name], self.layouts[name], over)
            alike = np.broadcast_to(blocks[at], blocks.shape)
            given[name] = _put_back(alike, axes, given[name].shape)
        found = evaluate(self.sums, given, domain)
        return {b.value: found[b.value] for b in self.balanced if b.mesh_dims == over}

    def _own(self, name: str, pattern: Array, given: Array) -> Array:
        """The numbers given, where they mean what those of a pattern do, and else these."""
        if pattern.dtype.kind == "b":
            return pattern
        if pattern.dtype.kind == "f":
            return np.where(np.sign(pattern) == np.sign(given), given, pattern)
        special = sorted(self.marks.get(name, ()))
        means = np.isin(pattern, special) | np.isin(given, special)
        return np.where(means, pattern, given)


def _blocks(
    whole: Array, layout: Layout, over: tuple[str, ...]
) -> tuple[Array, dict[int, int], int | None]:
    """What each rank along mesh dims holds, stacked; which axes these were, with their sizes, and
    along which axis of one of them its rows lie (None where it holds a single one)."""
    atoms = [(k, atom) for k, dim in enumerate(layout.dims) for atom in dim]
    axes = [next(i for i, (_, a) in enumerate(atoms) if a.mesh_dim == name) for name in over]
    last = axes[-1]
    after = atoms[last + 1] if last + 1 < len(atoms) else None
    rows = last + 1 - sum(axis <= last for axis in axes)
    sizes = tuple(atom.size for _, atom in atoms)
    moved = np.moveaxis(whole.reshape(sizes), axes, range(len(axes)))
    stacked = moved.reshape(-1, *moved.shape[len(axes) :])
    inside = after is not None and after[0] == atoms[last][0] and after[1].mesh_dim is None
    return stacked, {axis: sizes[axis] for axis in axes}, rows if inside else None


def _put_back(stacked: Array, axes: Mapping[int, int], shape: tuple[int, ...]) -> Array:
    """The array of which `_blocks` stacked the parts."""
    apart = stacked.reshape(*axes.values(), *stacked.shape[1:])
    return np.moveaxis(apart, range(len(axes)), list(axes)).reshape(shape)


def _same(a: Array, b: Array, domain: Domain) -> bool:
    if not isinstance(domain, Floats) or a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    return bool(np.allclose(a, b, NEAR, NEAR * float(np.max(np.abs(a), initial=0.0))))
