"""Parts of a report from plans, programs and verdicts."""

from __future__ import annotations

from agent.report import Report, fill, render_html, render_markdown
from agent.report.model import MeshDim, Parameter
from synthesis.cost import estimate
from synthesis.execute.job import Difference, RunResult
from synthesis.hardware import load
from synthesis.plan import CollectiveUse, ModulePlan, Plan
from verifier import verdict
from verifier.ir.builder import Builder
from verifier.ir.program import Program
from verifier.ir.types import Mesh, Source, TensorType

PLAN = Plan(
    mesh=Mesh.of(dp=2, tp=2),
    tp="tp",
    dp="dp",
    data="fsdp",
    modules=(
        ModulePlan("up", "Linear", "column", "R", "S(-1)", reason="Splits hidden units."),
        ModulePlan("layers.*.down", "Linear", "row", "S(-1)", "R"),
        ModulePlan("act", "GELU", "replicate"),
    ),
    params={
        "up.weight": {"dp": "S(0)", "tp": "S(0)"},
        "layers.*.down.weight": {"dp": "R", "tp": "S(1)"},
    },
    collectives=(
        CollectiveUse("all_reduce", "tp", "layers.*.down", "forward", 64, 3, "Closes it."),
    ),
)
PLACE = Source("mlp.py", 7, "up", "h = self.up(x)")


def program() -> Program:
    b = Builder("mlp")
    x = b.input("x", TensorType((4, 8)), "input", "x")
    up = b.input("up", TensorType((8, 16)), "param", "up.weight")
    down = b.input("down", TensorType((3, 16, 8)), "param", "layers.*.down.weight")
    with b.at(PLACE):
        h = b.add("mm", x, up)
    one = b.add("slice", down, dim=0, start=0, stop=1, step=1)
    flat = b.add("reshape", one, shape=(16, 8))
    b.output(b.add("cast", b.add("mm", h, flat), dtype="bf16"), "output", "y")
    return b.build()


def test_plan_rows_have_shapes_sizes_and_sources() -> None:
    up, down, act = fill.plan_rows(PLAN, program())
    assert up.parameters == (
        Parameter("weight", (8, 16), {"dp": "Shard(0)", "tp": "Shard(0)"}, "f32"),
    )
    assert (up.bytes, up.local_bytes) == (512, 128)
    assert str(up.source) == "mlp.py:7"
    assert down.parameters == (
        Parameter("weight", (16, 8), {"dp": "Replicate", "tp": "Shard(1)"}, "f32"),
    )
    assert (down.bytes, down.local_bytes) == (1536, 768)
    assert act.parameters == ()
    assert act.bytes is None


def test_mesh_dims_say_what_they_do() -> None:
    assert fill.mesh_dims(PLAN) == (
        MeshDim("dp", 2, "splits the batch and stores parameters in slices (fsdp)", True),
        MeshDim("tp", 2, "splits heads and hidden units", True),
    )


def test_capture_counts_what_was_rolled_and_cast() -> None:
    found = fill.capture(program(), "torch.export")
    assert found.rolled == {"layers.*": 3}
    assert found.parameters == 8 * 16 + 3 * 16 * 8
    assert found.inputs == ("x f32[4, 8]",)
    assert found.casts == ("f32 to bf16 in the model",)


def test_estimates_become_memory_and_time() -> None:
    cost = estimate(program(), load())
    memory = fill.memory(cost, cost, 80e9)
    assert memory.before.parameters == 512 + 1536
    assert memory.capacity == 80_000_000_000
    assert fill.time_estimate(cost, "h100").total == cost.step_s


def test_execution_agrees_within_the_tolerance() -> None:
    result = RunResult(2e-15, (Difference("loss", "loss", 2e-15, 1e-15),), 3.0, 4)
    assert fill.execution(result, 1e-9, "f64").agrees
    assert not fill.execution(result, 1e-16, "f64").agrees


def test_difference_that_is_not_a_number_does_not_agree() -> None:
    nan = float("nan")
    result = RunResult(nan, (Difference("output", "y", nan, nan),), 3.0, 4)
    assert not fill.execution(result, 1e-9, "f64").agrees


def test_rules_are_counted_in_bodies_too() -> None:
    values = {"a": [{"rule": "mm"}], "b": [{"rule": "mm"}, {"rule": "view"}]}
    claims = {"values": values, "bodies": {"s": {"values": {"c": [{"rule": "mm"}]}}}}
    assert fill.rule_counts({"claims": claims}) == {"mm": 3, "view": 1}


FOUND = verdict.Counterexample(
    mesh="dp=2,tp=2",
    witness=verdict.Witness("y", {"dp": 1, "tp": 0}, (0, 1), 2.0, 1.0, {"x": [[1, 0], [0, 1]]}),
    location=verdict.Location("mm", "%5 = mm %3, %4", "a pending sum", PLACE, ("%3 S(1)",)),
    fixes=("all_reduce %5, tp",),
)


def test_counterexample_keeps_place_rank_and_numbers() -> None:
    found = fill.counterexample(FOUND)
    assert (found.rank, found.expected, found.got) == (2, "2", "1")
    assert str(found.source) == "mlp.py:7"
    assert found.tensors[0].shape == (2, 2)
    assert found.tensors[0].values == (1, 0, 0, 1)
    assert found.fixes[0].verdict == "proved"


def test_verdicts_render() -> None:
    refuted = Report(
        title="t", verdict="refuted", headline="h", counterexample=fill.counterexample(FOUND)
    )
    bare = verdict.Counterexample("tp=2", verdict.Witness("y", {"tp": 1}, (), 2.0, float("nan")))
    unknown = verdict.Unknown("no relation", FOUND.location, ("y",), ("all_reduce",))
    for report in (
        refuted,
        Report(
            title="t", verdict="refuted", headline="h", counterexample=fill.counterexample(bare)
        ),
        Report(title="t", verdict="unknown", headline="h", missing=fill.missing(unknown)),
        Report(
            title="t",
            verdict="proved",
            headline="h",
            mesh=fill.mesh_dims(PLAN),
            plan=fill.plan_rows(PLAN, program()),
            collectives=fill.collectives(PLAN),
        ),
    ):
        assert "<h1>t</h1>" in render_html(report)
        assert render_markdown(report).startswith("# ")
