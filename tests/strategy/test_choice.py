"""What is chosen, what a patch can do of it, and what is said where nothing fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardproof.synthesis.price.step import price
from shardproof.synthesis.strategy import words
from shardproof.synthesis.strategy.choice import (
    Choice,
    NoPlanError,
    choose,
    default_batch,
    leanest,
    on_mesh,
    patches,
    quicker,
)
from shardproof.synthesis.strategy.space import fitted
from tests.strategy.models import DENSE, EXPERTS, LLAMA_8B, space


def test_patch_is_never_faster_than_the_best_and_is_one_that_can_be_written() -> None:
    chosen = choose(space(LLAMA_8B, 16, 64, seq=8192))
    assert chosen.emitted is not None
    assert chosen.gap >= 0
    assert not words.beyond(chosen.emitted.plan)
    assert chosen.emitted.price.fits
    assert chosen.best.price.fits


def test_next_best_are_slower_or_do_not_fit_and_have_other_degrees() -> None:
    chosen = choose(space(LLAMA_8B, 16, 64, memory=30e9, seq=8192))
    assert chosen.others
    for other in chosen.others:
        assert other.why
        assert other.step_s is None or other.step_s >= chosen.best.step_s
        assert other.step_s is not None or other.memory_bytes > 30e9
    names = [o.name.split(";")[0] for o in chosen.others]
    assert words.degrees(chosen.best.plan) not in names
    assert len(set(names)) == len(names)


def test_each_mesh_is_offered_once_fastest_first() -> None:
    found = list(patches(space(LLAMA_8B, 16, 64)))
    meshes = [(p.plan.dp, p.plan.tp) for p in found]
    assert len(set(meshes)) == len(meshes) > 2
    assert [p.step_s for p in found] == sorted(p.step_s for p in found)


def test_patches_split_rows_where_ranks_divide_heads() -> None:
    whole = space(LLAMA_8B, 32, 64, seq=8192)
    found = [p.plan for p in patches(whole)]
    split = [p for p in found if p.cp > 1]
    assert {8 % (p.tp * p.cp) for p in split} == {0}
    assert all(p.by_heads == (p.cp > 1) for p in found)
    ring = replace(split[0], by_heads=False)
    assert words.beyond(ring) == ["cp as a ring"]
    times = [price(whole.machine, whole.model, p).step_s for p in (split[0], ring)]
    assert times[0] > times[1]  # of keys and values there are few


def test_stages_of_a_launcher_have_micro_batches_each() -> None:
    whole = space(LLAMA_8B, 8, 64)
    found = on_mesh(whole, 2, 1, pp=4).plan
    assert (found.pp, found.schedule, found.in_stages) == (4, "1f1b", True)
    assert found.micro_batches >= 4
    assert not words.beyond(found)
    assert words.beyond(replace(found, in_stages=False)) == ["pp"]


def test_stages_and_groups_are_chosen_where_they_are_written() -> None:
    whole = space(LLAMA_8B, 16, 64, seq=8192)
    plain, staged = (
        [p.plan for p in patches(replace(whole, asked=asked))] for asked in ("patch", "launcher")
    )
    assert {p.pp for p in plain} == {1}
    cut = [p for p in staged if p.pp > 1]
    assert cut
    assert {p.schedule for p in cut} == {"1f1b"}
    assert {p.chunks for p in cut} == {p.cp for p in cut} == {1}
    assert all(p.micro_batches >= p.pp and p.zero == 3 for p in cut if p.dp > 1)
    grouped = [p for p in staged if p.shard < p.dp]
    assert grouped
    assert not any(words.beyond(p) for p in (*plain, *staged))
    fixed = replace(whole, fixed=(("shard", 4), ("dp", 16)))
    assert [(p.plan.dp, p.plan.shard, p.plan.zero) for p in patches(fixed)] == [(16, 4, 3)]


def test_less_is_kept_where_it_is_fixed() -> None:
    plain = space(LLAMA_8B, 2, 512)
    found = [
        on_mesh(replace(plain, fixed=(("recompute", kind),)), 1, 2)
        for kind in ("none", "selective", "full")
    ]
    assert [p.plan.recompute for p in found] == ["none", "selective", "full"]
    assert not any(words.beyond(p.plan) for p in found)
    alike = [replace(p.plan, micro_batch=1, micro_batches=512) for p in found]
    held = [price(plain.machine, plain.fitted(2), plan).memory.total for plan in alike]
    assert held == sorted(held, reverse=True)


def test_a_patch_splits_experts_over_the_ranks_of_tp() -> None:
    whole = space(EXPERTS, 4, 16)
    wide = on_mesh(whole, 1, 4)
    one = on_mesh(replace(whole, gpus=1), 1, 1)
    assert wide.price.memory.parameters == pytest.approx(one.price.memory.parameters / 4)
    assert not words.beyond(wide.plan)
    assert {p.plan.ep == p.plan.tp for p in patches(whole)} == {True}


def test_a_mesh_that_slows_a_small_model_is_said() -> None:
    whole = space({**DENSE, "heads": 16, "head_dim": 64}, 16, 64)
    wide = on_mesh(whole, 1, 16)
    found = quicker(whole, wide.step_s, 8)
    assert found is not None
    assert found.plan.gpus <= 8
    given = Choice(whole, wide, wide).compared()
    assert given.quicker is not None
    assert given.quicker.step_s <= found.step_s


def test_nothing_fits_names_the_memory_and_what_would_do() -> None:
    with pytest.raises(NoPlanError, match="no plan fits on 1 devices") as caught:
        choose(space(LLAMA_8B, 1, 64))
    assert "most of it optimizer" in caught.value.got
    assert caught.value.hint == "2 devices would do"
    assert choose(space(LLAMA_8B, 2, 64)).best.price.fits


def test_devices_that_no_degrees_make() -> None:
    with pytest.raises(NoPlanError, match="no degrees"):
        choose(space(DENSE, 7919, 16))


def test_leanest_patch_where_none_fits() -> None:
    whole = space(LLAMA_8B, 8, 64, memory=10e9, seq=8192)
    assert not list(patches(whole))
    assert not leanest(whole).price.fits


@pytest.mark.parametrize("gpus", [1, 7, 48, 64, 16384])
def test_default_batch_occupies_all_devices(gpus: int) -> None:
    batch = default_batch(gpus, 8192)
    assert batch * 8192 >= 1 << 22
    assert batch % gpus == 0 or gpus % batch == 0


def test_heads_are_filled_up() -> None:
    model = space({**DENSE, "heads": 9, "kv_heads": 3}, 2, 2).model
    assert (fitted(model, 2).heads, fitted(model, 2).kv_heads) == (10, 4)
    assert fitted(model, 3) is model


def test_sequence_parallelism_of_the_patch_is_priced_as_it_is() -> None:
    whole = space(LLAMA_8B, 8, 8, seq=8192)
    chosen = choose(whole)
    given = replace(chosen, emitted=on_mesh(whole, 1, 8))
    without = given.with_sequence(split=False)
    assert without.emitted is not None
    assert given.emitted is not None
    assert without.emitted.step_s > given.emitted.step_s
    assert without.best is chosen.best
