"""Samples of collectives: every group of mesh dims, every choice of attributes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations, product

from shardproof.verifier.kernel.program.types import Attr, Mesh
from tests.laws.samples.form import Attrs, Form, Forms, Shape, fixed


def _groups(mesh: Mesh) -> Iterator[tuple[str, ...]]:
    for count in range(1, len(mesh.names) + 1):
        yield from permutations(mesh.names, count)


def _collective(**choices: Sequence[Attr]) -> Forms:
    def form(a: int, b: int) -> Iterator[Form]:
        def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
            for group, values in product(_groups(mesh), product(*choices.values())):
                chosen = dict(zip(choices, values, strict=True))
                size = math.prod(mesh[name] for name in group)
                split = chosen.get("split_dim", chosen.get("dim") if "cut" in chosen else None)
                if isinstance(split, int) and local[0][split] % size:
                    continue
                chosen.pop("cut", None)
                yield {"mesh_dim": group[0] if len(group) == 1 else group, **chosen}

        yield Form(((a, 2 * b),), ("f32",), attrs)

    return form


def _on_coord(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        for name, size in mesh.dims:
            for index in range(size):
                yield {"mesh_dim": name, "index": index}

    yield Form(((a, b),), ("f32",), attrs)


def _moved(**choices: Sequence[Attr]) -> Forms:
    """Values that change ranks along one mesh dim: every choice, for the first and last rank."""

    def form(a: int, b: int) -> Iterator[Form]:
        def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
            for (name, size), values in product(mesh.dims, product(*choices.values())):
                chosen: dict[str, Attr] = dict(zip(choices, values, strict=True))
                for first, last in ((0, size - 1), (size - 1, 0)):
                    ends = {"src": first, "dst": last, "index": first}
                    yield {"mesh_dim": name, **chosen, **{k: ends[k] for k in chosen if k in ends}}

        yield Form(((a, b),), ("f32",), attrs)

    return form


def _kept(a: int, b: int) -> Iterator[Form]:
    yield Form(((a, b),), ("f32",), fixed({}))


REDUCES = ("sum", "avg", "max", "min")
GROUPS: dict[str, Forms] = {
    "all_reduce": _collective(reduce=REDUCES),
    "all_gather": _collective(dim=(0, 1)),
    "reduce_scatter": _collective(dim=(0, 1), reduce=REDUCES, cut=(True,)),
    "shard_slice": _collective(dim=(0, 1), cut=(True,)),
    "shard_pad": _collective(dim=(0, 1)),
    "all_to_all": _collective(split_dim=(0, 1), concat_dim=(0, 1)),
    "on_coord": _on_coord,
    "send": _moved(src=(0,), dst=(0,)),
    "recv": _moved(src=(0,), dst=(0,)),
    "broadcast": _moved(index=(0,)),
    "reduce_to": _moved(index=(0,), reduce=REDUCES),
    "ring_shift": _moved(shift=(1, 2, -1)),
    "gather": _moved(index=(0,), dim=(0, 1)),
    "scatter": _moved(index=(0,), dim=(0, 1)),
    **dict.fromkeys(("merge", "only", "wait"), _kept),
}
