"""Points of the full-size benchmark fit, are proved, and are written as tables and a page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import scale as bench
from benchmarks.steps import scale
from benchmarks.steps.model import TINY, Degrees, check
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Run

SMALL = scale.Point(
    "L0",
    replace(TINY, batch=8),
    Degrees(dp=2, pp=2, micro_batches=2, scan_layers=True, scan_micro_batches=True),
    "tiny",
    published_s=100,
    target_s=60,
)


@pytest.mark.parametrize("name", scale.CURVES)
def test_points_of_a_curve_fit_and_vary_one_thing(name: str) -> None:
    points = scale.curve(name)
    assert len({(p.model, p.degrees) for p in points}) == len(scale.CURVES[name])
    for point in (*points, *scale.PLANS):
        check(point.model, point.degrees)


def test_growth_is_judged_by_what_is_varied() -> None:
    assert scale.flatness("layers", [1, 1.2, 1.25]) == (1.25, True)
    assert not scale.flatness("layers", [1, 1.4])[1]
    assert scale.flatness("pp", [1, 2, 4, 8, 15])[1]
    assert not scale.flatness("pp", [1, 2, 4, 8, 17])[1]


def test_point_is_measured_in_a_fresh_process_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "PLANS", (SMALL,))
    monkeypatch.setattr(bench, "CURVES", {})
    out = bench.run(Run([]), bench.Choice(), tmp_path / "out")
    assert out.exit is Exit.PROVED
    (row,) = json.loads((tmp_path / "out" / bench.RESULTS).read_text())["plans"]
    assert row["verdict"] == "proved"
    assert row["accepted"] is True
    phases = ("write_s", "structure_s", "time_s", "relate_s", "certificate_s", "schedule_s")
    assert sum(row[p] for p in phases) <= row["total_s"]
    page = (tmp_path / "out" / bench.PAGE).read_text()
    assert "L0" in page
    assert "src=" not in page
    assert "<script" not in page


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(InputError, match="no such plan"):
        bench.run(Run([]), bench.Choice(("L9",)), None)


def test_picture_goes_into_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    row = scale.measured(SMALL, checked=False)
    curves = {"tp": [replace(row, name=f"tp={n}") for n in scale.CURVES["tp"]]}
    bench.write(Run([]), tmp_path, {"processor": "one <&>"}, [row], curves)
    page = (tmp_path / bench.PAGE).read_text()
    assert "<svg" in page
    assert "one &lt;&amp;&gt;" in page
    assert (tmp_path / bench.PICTURE).read_bytes().startswith(b"\x89PNG")
