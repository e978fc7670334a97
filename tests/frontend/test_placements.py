"""Layouts that are read off DTensors, against the elements that PyTorch gives to each rank."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof.verifier.kernel.contract import layout_from_json
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.types import Mesh

pytestmark = [pytest.mark.torch, pytest.mark.slow]

HERE = Path(__file__).parent
Where = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    mesh: tuple[tuple[str, int], ...]
    shape: tuple[int, ...]
    tp: tuple[int, int] | None = None
    """Dim and split factor."""
    dp: int | None = None
    """The dim that fully_shard splits."""

    def __str__(self) -> str:
        mesh = ",".join(f"{name}={size}" for name, size in self.mesh)
        return f"{mesh} {list(self.shape)} tp={self.tp} dp={self.dp}"


def mesh(**dims: int) -> tuple[tuple[str, int], ...]:
    return tuple(dims.items())


EVEN = [
    Case(mesh(tp=2), (4, 6), (0, 1)),
    Case(mesh(tp=2), (4, 6), (1, 1)),
    Case(mesh(tp=2), (12, 3), (0, 3)),
    Case(mesh(tp=4), (3, 24), (1, 3)),
    Case(mesh(tp=2), (16,), (0, 2)),
    *(Case(mesh(dp=dp), (8, 12), None, dim) for dp in (2, 4) for dim in (0, 1)),
    Case(mesh(dp=2), (4, 6, 2), None, 2),
    *(
        Case(mesh(dp=dp, tp=2), (16, 24), (at, factor), dim)
        for dp in (2, 4)
        for at, factor in ((0, 1), (1, 1))
        for dim in (0, 1)
    ),
    *(Case(mesh(dp=dp, tp=2), (24, 16), (0, 3), 1) for dp in (2, 4)),
    Case(mesh(dp=2, tp=2), (8,), (0, 1), 0),
    Case(mesh(dp=2, tp=2), (8, 4)),
]
UNEVEN = [
    Case(mesh(tp=2), (5, 4), (0, 1)),
    Case(mesh(tp=4), (8, 6), (1, 1)),
    Case(mesh(dp=4), (6, 8), None, 0),
    Case(mesh(dp=2, tp=2), (10, 8), (0, 1), 0),
    Case(mesh(dp=4, tp=2), (4, 4), (0, 1), 0),
]


@pytest.fixture(scope="module")
def found(root: Path) -> dict[Case, Where]:
    """What each rank holds, and the layout that was read there."""
    cases = [*EVEN, *UNEVEN]
    asked = json.dumps([asdict(case) for case in cases])
    done = subprocess.run(
        [sys.executable, str(HERE / "placing.py"), asked],
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(cases, json.loads(done.stdout), strict=True))


def rows_held(layout: Layout, dim: int, coords: dict[str, int]) -> np.ndarray[Any, Any]:
    """The indices of a dim of the whole that a rank holds, in its order."""
    atoms = layout.dims[dim]
    whole = np.arange(layout.global_shape[dim]).reshape([a.size for a in atoms])
    return whole[tuple(slice(None) if a.mesh_dim is None else coords[a.mesh_dim] for a in atoms)]


@pytest.mark.parametrize("case", EVEN, ids=str)
def test_each_rank_holds_what_the_layout_says(found: dict[Case, Where], case: Case) -> None:
    ranks = found[case]
    layouts = [layout_from_json(Cursor(rank["layout"], "layout")) for rank in ranks]
    assert len(set(layouts)) == 1
    (layout,) = set(layouts)
    assert layout.global_shape == case.shape
    assert not layout.partial
    split = {n for n, at in (("tp", case.tp), ("dp", case.dp)) if at is not None}
    assert layout.sharded == split
    numbers = np.arange(int(np.prod(case.shape))).reshape(case.shape)
    for rank, coords in zip(ranks, Mesh(case.mesh).coords(), strict=True):
        rows = [rows_held(layout, d, dict(coords)).reshape(-1) for d in range(len(case.shape))]
        expected = numbers[np.ix_(*rows)]
        assert list(layout.local_shape) == rank["shape"]
        assert rank["held"] == expected.reshape(-1).tolist()


@pytest.mark.parametrize("case", UNEVEN, ids=str)
def test_extents_that_do_not_divide_have_no_layout(found: dict[Case, Where], case: Case) -> None:
    for rank in found[case]:
        assert "do not divide evenly" in rank["error"]
        assert "weight, dim" in rank["error"]
