"""Pictures: what is drawn, and that they stay small whatever they are given."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from shardproof.agent.report.drawings.block import draw_block, flow_of, frame_of, side
from shardproof.agent.report.drawings.mesh import draw_mesh
from shardproof.agent.report.drawings.step import draw_front, draw_step
from shardproof.agent.report.model import MeshDim, ModuleRow, Parameter, StepInTime
from shardproof.synthesis.planner.plan import CollectiveUse
from tests.report import failures, samples


def texts(svg: str | None) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)", svg or "")


def test_siblings_of_one_style_stand_side_by_side() -> None:
    report = samples.proved()
    flow = flow_of(report.plan, report.collectives, report.mesh)
    names = [[row.path.rpartition(".")[2] for row in stage.rows] for stage in flow.stages]
    assert ["q_proj", "k_proj", "v_proj"] in names
    assert ["gate_proj", "up_proj"] in names
    assert ["input_layernorm"] in names


def test_collective_of_a_container_stands_after_its_last_module() -> None:
    report = samples.proved()
    flow = flow_of(report.plan, report.collectives, report.mesh)
    last = next(s for s in flow.stages if s.rows[0].path.endswith("o_proj"))
    assert [(u.op, u.phase) for u in last.leaving if u.where.endswith("self_attn")] == [
        ("all_gather", "forward"),
        ("reduce_scatter", "backward"),
    ]


def test_collectives_over_a_data_dim_belong_to_parameters() -> None:
    row = ModuleRow(path="h.*.up", style="column", parameters=(Parameter("w", (2, 2)),))
    use = CollectiveUse(
        op="reduce_scatter", mesh_dim="dp", phase="backward", where="h.*.up", count=1, bytes=1
    )
    flow = flow_of((row,), (use,), (MeshDim("dp", 2, "", True, True),))
    assert flow.of_frame == {"h.*": (use,)}
    assert flow_of((row,), (use,)).stages[0].entering == (use,)


def test_equal_collectives_at_one_place_share_a_pill() -> None:
    base = samples.proved()
    row = ModuleRow(path="h.*.down", style="row", parameters=(Parameter("w", (2, 2)),))
    use = CollectiveUse(
        op="all_reduce", mesh_dim="tp", phase="forward", where="h.*.down", count=1, bytes=1024
    )
    drawn = draw_block(replace(base, plan=(row,), collectives=(use, use)), 520, "k")
    assert texts(drawn).count("all_reduce tp 2 KiB") == 1


def test_every_collective_is_drawn_once() -> None:
    report = samples.proved()
    flow = flow_of(report.plan, report.collectives, report.mesh)
    placed = [use for stage in flow.stages for use in (*stage.entering, *stage.leaving)]
    placed += [use for uses in flow.of_frame.values() for use in uses]
    assert sorted(placed, key=str) == sorted(report.collectives, key=str)
    drawn = draw_block(report, 520, "k")
    assert drawn is not None
    assert drawn.count("times a step.") == len(report.collectives)


@pytest.mark.parametrize(
    ("style", "expected"), [("column", "input"), ("fused_column", "input"), ("row", "output")]
)
def test_side_follows_from_the_style(style: str, expected: str) -> None:
    use = CollectiveUse(
        op="all_reduce", mesh_dim="tp", phase="forward", where="m", count=1, bytes=1
    )
    assert side(use, [ModuleRow(path="m", style=style)]) == expected


def test_frame_is_the_path_up_to_the_star() -> None:
    assert frame_of("model.layers.*.mlp.up_proj") == "model.layers.*"
    assert frame_of("model.layers.[1:9:2].mlp.up") == "model.layers.[1:9:2]"
    assert frame_of("model.norm") == ""


def test_many_modules_are_cut_with_a_count() -> None:
    report = samples.proved()
    rows = tuple(
        ModuleRow(path=f"m{i}", style="row", parameters=(Parameter("w", (2, 2)),))
        for i in range(100)
    )
    drawn = draw_block(replace(report, plan=rows, collectives=()), 520, "k")
    assert "and 60 modules more, in the table" in texts(drawn)


def test_mesh_names_every_rank_of_a_small_mesh() -> None:
    drawn = draw_mesh((MeshDim("dp", 2), MeshDim("tp", 2, "", True)), 520, "k")
    assert {"rank 0", "rank 1", "rank 2", "rank 3"} <= set(texts(drawn))


def test_mesh_of_many_ranks_stays_small() -> None:
    mesh = tuple(MeshDim(name, 32, "", True) for name in ("pp", "dp", "cp", "tp"))
    drawn = draw_mesh(mesh, 520, "k")
    assert drawn is not None
    assert len(drawn) < 40_000
    assert str(32**4 - 1) not in texts(drawn)
    assert "and 1022 more like these" in texts(drawn)


def test_mesh_piece_follows_the_coordinates() -> None:
    mesh = (MeshDim("dp", 2, "", True), MeshDim("tp", 4, "", True))
    drawn = draw_mesh(mesh, 520, "k")
    assert drawn is not None
    pieces = re.findall(r'width="([\d.]+)" height="([\d.]+)"[^>]*class="piece"', drawn)
    wholes = re.findall(r'width="([\d.]+)" height="([\d.]+)"[^>]*class="whole"', drawn)
    assert len(pieces) == len(wholes) == 8
    width, height = float(wholes[0][0]), float(wholes[0][1])
    assert {(float(w), float(h)) for w, h in pieces} == {(width / 4, height / 2)}


def test_nothing_to_draw_gives_no_picture() -> None:
    assert draw_mesh((), 520, "k") is None
    assert draw_block(failures.unknown(), 520, "k") is None


def priced(name: str, seconds: float, used: int) -> dict[str, Any]:
    return {"text": f"{name} in short", "step_s": seconds, "memory_bytes": used}


def test_a_step_has_a_row_for_each_stage_and_a_mark_for_each_span() -> None:
    spans = ((0, "forward", "F0", 0.0, 1.0), (1, "forward", "F0", 1.0, 1.0),
             (1, "backward", "B0", 2.0, 2.0), (0, "backward", "B0", 4.0, 2.0))  # fmt: skip
    held = ((0, 0.0, 5.0), (0, 6.0, 1.0), (1, 1.0, 3.0))
    step = StepInTime(stages=2, drawn=1, micro_batches=8, spans=spans, held=held)
    svg = draw_step({"best": step}, 520, "s")
    assert svg is not None
    assert svg.count("<rect") == len(spans) + 2
    assert texts(svg)[:4] == ["best", "6 s, 1 of 8 micro-batches", "stage 0", "stage 1"]
    assert svg.count('class="level"') == 2
    assert draw_step({}, 520, "s") is None


def test_plans_are_drawn_on_one_scale_where_steps_are_whole() -> None:
    def step(seconds: float, held: float, drawn: int = 1) -> StepInTime:
        spans = ((0, "forward", "F0", 0.0, seconds),)
        return StepInTime(
            stages=1, drawn=drawn, micro_batches=1, spans=spans, held=((0, 0.0, held),)
        )

    def widths(*steps: StepInTime) -> list[float]:
        svg = draw_step({str(i): each for i, each in enumerate(steps)}, 520, "s")
        return [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)" height="18"', svg or "")]

    half, full = widths(step(1.0, 4.0), step(2.0, 8.0))
    assert half == pytest.approx(full / 2, abs=0.5)
    half, full = widths(step(1.0, 4.0), step(2.0, 8.0, drawn=2))
    assert half == full


def test_front_has_a_point_for_each_plan_and_its_ends_in_figures() -> None:
    front = [priced("a", 10.0, 80 << 30), priced("b", 11.0, 60 << 30), priced("c", 12.0, 40 << 30)]
    svg = draw_front(front, 312, "f")
    assert svg is not None
    assert svg.count("<circle") == 3
    assert texts(svg) == ["12 s", "10 s", "40 GiB", "80 GiB"]
    assert draw_front(front[:1], 312, "f") is None
