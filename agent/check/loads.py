"""Whether each rank was loaded with the piece that its layout says: elements are numbered, so what
a rank holds says where it came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shardproof.agent.check.contract import Placed, placement
from shardproof.agent.check.judging import Checked
from shardproof.agent.check.parts import part
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.ranks.request import MADE_UP, RanksRequest
from shardproof.synthesis.frontends.torch.ranks.result import (
    Loaded,
    Loads,
    RanksCaptured,
    read_loads,
)
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.refute.scatter import piece
from shardproof.verifier.verdict import Counterexample, Trace, Verdict

MOST_TOLD = 8
"""Wrong pieces that are told; of others, how many there are."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class _Whole:
    """The numbers of one device, by which elements are found again."""

    held: Mapping[str, Numbers]
    order: NDArray[np.int64]
    numbers: Numbers
    starts: dict[str, int]

    def box(self, numbers: Numbers) -> str:
        """`fc.weight[8:16, :]`, the elements with these numbers."""
        flat = numbers.ravel()
        at = np.minimum(np.searchsorted(self.numbers, flat), len(self.numbers) - 1)
        if np.any(self.numbers[at] != flat):
            return "numbers that no parameter of the model has"
        places = self.order[at]
        name = next(n for n in reversed(self.starts) if self.starts[n] <= places[0])
        shape, first = self.held[name].shape, self.starts[name]
        inside = places - first
        if np.any(inside < 0) or np.any(inside >= self.held[name].size):
            return f"elements of {name} and of other parameters"
        dims = [np.unique(i) for i in np.unravel_index(inside, shape)]
        dense = all(i[-1] - i[0] + 1 == len(i) for i in dims)
        taken = ", ".join(map(_range, dims, shape))
        known = dense and int(np.prod([len(i) for i in dims])) == len(set(places.tolist()))
        in_order = bool(np.all(np.diff(inside) > 0))
        if known and len(places) == len(set(places.tolist())):
            return f"{name}[{taken}]" + ("" if in_order else ", in another order")
        at = _at(places[0] - first, shape)
        return f"elements of {name} that are not a block, the first {name}{at}"


def _range(taken: NDArray[np.int64], extent: int) -> str:
    whole = len(taken) == extent
    return ":" if whole else f"{taken[0]}:{taken[-1] + 1}"


def _at(flat: int, shape: tuple[int, ...]) -> str:
    return str([int(i) for i in np.unravel_index(flat, shape)])


def _whole(one: Loaded) -> _Whole:
    held = {n: a for n, a in one.held.items() if one.ties.get(n, n) == n}
    starts: dict[str, int] = {}
    last = 0
    for name, array in held.items():
        starts[name] = last
        last += array.size
    flat = np.concatenate([a.ravel() for a in held.values()] or [np.empty(0)])
    order = np.argsort(flat, kind="stable")
    return _Whole(held, order, flat[order], starts)


@dataclass(frozen=True)
class Looked:
    """What was found of a load."""

    wrong: tuple[str, ...] = ()
    """Pieces that hold other elements than their layout says."""
    told: tuple[str, ...] = ()
    """What is known and what is assumed, in sentences."""


def looked(folder: Path, request: RanksRequest, checked: Checked) -> Looked:
    """What was found of the load of a module that was captured into a folder.

    Raises:
        CaptureError, InputError: it fails; a checkpoint that gives the model nothing.
    """
    found = read_loads(folder, request.mesh.size)
    return look(found, checked.captured, checked.placed, request.mesh, request.load)


def look(
    loads: Loads, captured: RanksCaptured, placed: Sequence[Placed], mesh: Mesh, given: str
) -> Looked:
    """Compare what each rank holds with its layouts.

    Args:
        placed: the layouts of parameters.
        given: what was loaded, in the words of the user.

    Raises:
        InputError: a checkpoint that gives the model nothing.
    """
    missing = [n for n in loads.one.missing if n not in captured.one.ties]
    if len(missing) == len(captured.one.params):
        raise InputError(
            f"no parameter of the model is loaded from {given}",
            where=f"--load {given}",
            expected=f"tensors such as {missing[0]}",
        )
    what = "a made-up checkpoint" if given == MADE_UP else f"one with the tensors of {given}"
    told = [f"Ranks were loaded with {what}, elements numbered: they hold what their layouts say."]
    if missing:
        told.append(f"Not in the checkpoint, so not looked at: {', '.join(missing)}.")
    told += [
        f"Integers that ranks exchange while they are loaded are taken to agree: {call}."
        for call in dict.fromkeys(c for rank in loads.ranks for c in rank.counted)
    ]
    return Looked(tuple(_wrong(loads, captured, placed, mesh, missing)), tuple(told))


def decided(verdict: Verdict, looked: Looked, mesh: Mesh) -> Verdict:
    """A refutation where a piece is wrong; a verdict on the programs that refutes them stays."""
    if not looked.wrong or isinstance(verdict, Counterexample):
        return verdict
    left = len(looked.wrong) - MOST_TOLD
    steps = (*looked.wrong[:MOST_TOLD], *([f"and {left} more"] if left > 0 else []))
    count = f"{len(looked.wrong)} pieces hold other elements than their layouts say"
    return Counterexample(str(mesh), Trace("load", count, steps))


def _wrong(
    loads: Loads,
    captured: RanksCaptured,
    placed: Sequence[Placed],
    mesh: Mesh,
    missing: Sequence[str],
) -> list[str]:
    whole = _whole(loads.one)
    layouts = {p.name: p for p in placed if p.kind in ("parameter", "buffer")}
    out: list[str] = []
    for rank, loaded in enumerate(loads.ranks):
        coords = mesh.coords()[rank]
        where = f"rank {','.join(f'{n}={at}' for n, at in coords.items())}"
        names = captured.ranks[rank].renamed
        for own, held in loaded.held.items():
            first = loaded.ties.get(own, own)
            name = captured.one.ties.get(names.get(first, first), names.get(first, first))
            told = layouts.get(name) or layouts.get(part(name, 0))
            if name in missing or told is None or name not in whole.held:
                continue
            want = _wanted(whole.held[name], name, layouts, coords)
            if held.shape == want.shape and np.array_equal(held, want):
                continue
            got = f"holds {whole.box(held)}, {_first(held, want)}"
            laid = placement(told.layout, mesh)
            out.append(f"{where}: {own} {got}; expected {whole.box(want)}: {laid} ({told.how})")
    return out


def _wanted(
    whole: Numbers, name: str, layouts: Mapping[str, Placed], coords: Mapping[str, int]
) -> Numbers:
    """What a rank holds of a parameter, which may be of parts."""
    if name in layouts:
        return piece(whole, layouts[name].layout, coords)
    found = (layouts.get(part(name, i)) for i in count())
    parts = [p.layout for p in takewhile(lambda p: p is not None, found) if p is not None]
    first = parts[0].global_shape
    dim = next((d for d, n in enumerate(first) if n != whole.shape[d]), 0)
    cuts = list(accumulate(p.global_shape[dim] for p in parts))[:-1]
    pieces = [piece(a, p, coords) for a, p in zip(np.split(whole, cuts, dim), parts, strict=True)]
    return np.concatenate(pieces, dim)


def _first(held: Numbers, want: Numbers) -> str:
    """The first element that differs, where the shapes are the same."""
    if held.shape != want.shape:
        return f"of shape {list(held.shape)}"
    differs = ~np.equal(held, want)
    at = int(np.argmax(differs.ravel()))
    return f"wrong from {_at(at, held.shape)} on, {int(differs.sum())} of {held.size}"
