"""A constraint is kept by the plan, or named with what stands against it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from shardproof.synthesis.planner.assign import PlanError, misfit, options
from shardproof.synthesis.planner.constraints import (
    NO_CONSTRAINTS,
    STYLES,
    ConstraintError,
    Constraints,
    Kind,
    named,
    read_bytes,
    show_bytes,
)
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof
from tests.synthesis import decoder

PROGRAM = decoder.decoder(layers=2)
TP = Mesh.of(tp=2)


@pytest.fixture(scope="module")
def plain() -> Synthesis:
    return synthesize(Asked(PROGRAM, TP, decoder.CLUSTER))


def constraint(*words: tuple[Kind, str]) -> Constraints:
    out = NO_CONSTRAINTS
    for kind, text in words:
        out = out.with_constraint(kind, text)
    return out


def again(plain: Synthesis, *words: tuple[Kind, str]) -> Synthesis:
    return synthesize(replace(plain.asked, constraints=constraint(*words)), like=plain.found.state)


def proved(made: Synthesis) -> bool:
    verdict = verify(Problem(made.sequential, made.lowered.program, made.lowered.contract))
    return isinstance(verdict, Proof)


@pytest.mark.parametrize(
    ("path", "style"),
    [
        ("layers.*.mlp.down", "replicate"),
        ("layers.*.attn.q", "replicate"),
        ("embed", "replicate"),
    ],
)
def test_a_pin_is_kept_and_the_plan_is_proved(plain: Synthesis, path: str, style: str) -> None:
    assert plain.found.best.point.style(path) != style
    made = again(plain, ("pin", f"{path}={style}"))
    for candidate in (made.found.best, *made.found.others):
        assert candidate.point.style(path) == style
    assert "column" in {s for _, s in made.found.best.point.styles}
    assert proved(made)


def test_a_ban_is_kept_by_every_candidate(plain: Synthesis) -> None:
    made = again(plain, ("ban", "layers.*.mlp.down=row"))
    points = [c.point for c in (made.found.best, *made.found.others)]
    assert "row" not in {p.style("layers.*.mlp.down") for p in points}
    assert proved(made)


def test_a_pattern_names_all_that_it_matches(plain: Synthesis) -> None:
    made = again(plain, ("pin", "layers.*=replicate"))
    styles = dict(made.found.best.point.styles)
    assert {s for p, s in styles.items() if p.startswith("layers.")} == {"replicate"}
    assert styles["head"] == "column"


def test_streams_tactics_and_the_loss(plain: Synthesis) -> None:
    split = again(plain, ("constrain", "sequence_parallel"))
    assert split.plan.sequence_parallel
    whole = again(plain, ("ban", "column_row"), ("constrain", "no-sequence-parallel"))
    assert {c.point.stream for c in (whole.found.best, *whole.found.others)} == {"R"}
    assert "column_row" not in {name for name, _, _ in whole.found.starts}
    assert plain.plan.loss_parallel
    assert not again(plain, ("constrain", "no_loss_parallel")).plan.loss_parallel


def test_memory_is_kept_or_the_least_is_told(plain: Synthesis) -> None:
    sizes = sorted(
        c.estimate.memory_bytes
        for c in (plain.found.best, *plain.found.others)
        if c.estimate.parameters <= plain.found.best.estimate.parameters
    )
    assert sizes[0] < plain.found.best.estimate.memory_bytes
    made = again(plain, ("constrain", f"memory={sizes[0]}"))
    assert made.found.best.estimate.memory_bytes <= sizes[0]
    with pytest.raises(
        ConstraintError, match=r"memory 1kB: no plan that was found fits; the leanest"
    ):
        again(plain, ("constrain", "memory=1kB"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([("pin", "layers.*.norm1=column")], "a norm has no product.*expected replicate"),
        ([("pin", "layers.0.norm1=row")], r"planned as one; expected layers\.\*\.norm1"),
        ([("pin", "layers.*.mlp.dwn=row")], r"no such module.*layers\.\*\.mlp\.down"),
        (
            [("pin", "*.up=fused_column")],
            "nothing is fused.*expected replicate, column, row, gath",
        ),
        ([("pin", "head=row"), ("pin", "he*=column")], "pinned twice"),
        ([("pin", "head=row"), ("ban", "head=row")], "no style is left for head"),
        ([("ban", name) for name in TACTICS], "no tactic is left"),
        ([("pin", "layers.*.attn.q=row")], r"pin layers\.\*\.attn\.q=row: no plan keeps it"),
    ],
)
def test_a_constraint_that_cannot_hold_is_named(
    plain: Synthesis, words: list[tuple[Kind, str]], message: str
) -> None:
    with pytest.raises(ConstraintError, match=message):
        again(plain, *words)


def test_only_the_constraint_in_the_way_is_blamed(plain: Synthesis) -> None:
    with pytest.raises(ConstraintError) as told:
        again(plain, ("pin", "embed=replicate"), ("pin", "layers.*.attn.q=row"))
    assert told.value.constraint == "pin layers.*.attn.q=row"
    assert "shard_slice" in told.value.got


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("pin", "head"),
        ("pin", "head=rowe"),
        ("pin", "norm=sequence"),
        ("ban", "megatron"),
        ("constrain", "memory"),
        ("constrain", "memory=-1GB"),
        ("constrain", "memory=1.2.3GB"),
        ("constrain", "fast"),
    ],
)
def test_words_that_cannot_be_read(kind: Kind, text: str) -> None:
    with pytest.raises(ConstraintError):
        constraint((kind, text))


PATHS = st.sampled_from(["a", "b.*.c", "*"])
PAIRS = st.lists(st.tuples(PATHS, st.sampled_from(STYLES)), max_size=3, unique_by=lambda p: p[0])
WISHES = st.builds(
    Constraints,
    pins=PAIRS.map(tuple),
    bans=PAIRS.map(tuple),
    tactics=st.lists(st.sampled_from(list(TACTICS)), unique=True).map(tuple),
    memory_bytes=st.none() | st.integers(1, 10**15),
    sequence_parallel=st.none() | st.booleans(),
    loss_parallel=st.none() | st.just(value=False),
)


@given(WISHES)
def test_each_constraint_is_told_and_can_be_left_out(constraints: Constraints) -> None:
    fewer = list(constraints.each())
    assert bool(constraints) == bool(fewer)
    assert len(fewer) == len(constraints.lines())
    assert all(less != constraints for _, less in fewer)


def test_sizes() -> None:
    assert read_bytes("80GB") == 80 * 10**9
    assert read_bytes("1.5 GiB") == 3 * 2**29
    assert read_bytes("512m") == 512 * 10**6
    assert read_bytes(show_bytes(80e9)) == 80 * 10**9


@pytest.mark.parametrize("tp", [2, 3, 4, 8])
def test_a_style_fits_where_nothing_speaks_against_it(plain: Synthesis, tp: int) -> None:
    for module in plain.found.modules:
        told = {style for style in STYLES if misfit(module, style, tp) is None}
        assert told == set(options(module, tp))


def test_extents_are_told(plain: Synthesis) -> None:
    by_path: dict[str, Module] = {m.path: m for m in plain.found.modules}
    assert misfit(by_path["layers.*.attn.q"], "column", 3) == "4 heads do not divide by 3"
    wide = replace(by_path["layers.*.mlp.up"], parts=3)
    assert "fused" in str(misfit(wide, "column", 2))
    with pytest.raises(PlanError):
        named("nothing", plain.found.modules)
