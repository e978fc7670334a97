"""The launcher's text, by plan and inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.launcher import Training, launcher, obstacle, stamped
from shardproof.synthesis.emit.patch import COMMENT, EmitError, Patch
from shardproof.synthesis.emit.stages import Cut
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.planner.plan import Plan
from shardproof.verifier.kernel.program.types import Mesh

FACTS = ModelFacts(
    *("net.py:Net", "Net", {}),
    build="Net(Config(width=8))",
    names=("Net", "Config"),
    loss_of_call="model(x, y).loss",
)
INPUTS = (InputSpec("x", (8, 4)), InputSpec("y", (8,), "i64", 5), InputSpec("scale", (1,)))
PLAN = Plan(Mesh((("data", 2), ("tp", 2))), tp="tp", dp="data", data="fsdp")
PATCH = Patch({"net.py": ("", "")}, "", (), "", "parallelize_net")


def text(plan: Plan = PLAN, parts: int = 1) -> str:
    return launcher(FACTS, plan, PATCH, INPUTS, Training(parts, "adam")).text


def test_rows_of_a_rank_are_those_of_its_coordinate() -> None:
    made = text()
    assert "from net import Config, Net, parallelize_net" in made
    assert 'dp = mesh["data"]' in made
    assert "x, y = (x.chunk(dp.size())[dp.get_local_rank()] for x in (x, y))" in made
    assert "MICRO_BATCHES" not in made
    assert "return total / dp.size(), norm" in made


def test_micro_batches_are_cut_before_the_rows_of_ranks() -> None:
    made = text(parts=2)
    assert "whole = [x.chunk(MICRO_BATCHES) for x in (x, y)]" in made
    assert "loss = model(x, y).loss / MICRO_BATCHES" in made
    assert "set_requires_gradient_sync(number == MICRO_BATCHES - 1)" in made


def test_a_sum_of_losses_is_not_averaged() -> None:
    made = text(replace(PLAN, loss="sum"), parts=2)
    assert "/ MICRO_BATCHES" not in made
    assert "/ dp.size()" not in made


def test_stages_run_a_schedule_that_names_inputs_of_its_own() -> None:
    stages = ("table", "head"), ("blocks.1",), ("head", "table")
    cut = Cut(stages, ("table.weight",))
    inputs = (InputSpec("x", (8, 4)), InputSpec("target", (8,), "i64", 5))
    mesh = Mesh((("pp", 2), *PLAN.mesh.dims))
    made = launcher(FACTS, PLAN, PATCH, inputs, Training(2, "adam", mesh, cut)).text
    assert '("table", "head"),\n    ("blocks.1",),\n    ("head", "table"),\n' in made
    assert 'stage.keep(make_model()), mesh["data", "tp"])' in made
    assert "schedule.step(x=x, target_=target, return_outputs=False, **given)" in made
    assert "p.grad = p.grad.redistribute(placements=p.placements)" in made
    assert "from shardproof.runtime import Stage" in made
    pasted = launcher(FACTS, PLAN, PATCH, inputs, Training(2, "adam", mesh, cut), True).text
    assert "class Stage:" in pasted
    assert "import Stage" not in pasted
    summed = launcher(
        FACTS, replace(PLAN, loss="sum"), PATCH, inputs, Training(2, "adam", mesh, cut)
    )
    assert "lambda loss, target: loss, scale_grads=False)" in summed.text


def test_without_data_parallelism_nothing_is_exchanged() -> None:
    made = text(Plan(Mesh((("tp", 2),)), tp="tp"), parts=2)
    assert "dist." not in made
    assert "get_local_rank" not in made
    assert "x, y = micro_batch" in made


@pytest.mark.parametrize(
    ("facts", "inputs", "parts", "says"),
    [
        (replace(FACTS, loss_of_call=""), INPUTS, 1, "returns no loss"),
        (replace(FACTS, build=""), INPUTS, 1, "cannot be written"),
        (FACTS, INPUTS, 3, "give --batch 12"),
        (FACTS, (InputSpec("mesh", (8,)),), 1, "called mesh"),
        (FACTS, (InputSpec("batch.x", (8,)),), 1, "several tensors"),
    ],
    ids=["loss", "build", "batch", "name", "nested"],
)
def test_what_stands_in_the_way_is_said(
    facts: ModelFacts, inputs: tuple[InputSpec, ...], parts: int, says: str
) -> None:
    assert says in (obstacle(facts, inputs, 2, Training(parts)) or "")
    with pytest.raises(EmitError, match=says):
        launcher(facts, PLAN, PATCH, inputs, Training(parts))


def test_a_comment_alone_is_exchanged() -> None:
    made = text()
    assert stamped(made, "# Proved.") == made.replace(COMMENT, "# Proved.")
    for wrong in ("pass", "# a\n# b"):
        with pytest.raises(EmitError, match="once"):
            stamped(made, wrong)
