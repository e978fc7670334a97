"""Every check passes on what is right, fails on what is not, and names the rank where it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.fault_kinds import flip_bits
from shardproof.synthesis.guard.fingerprint import (
    GAY_SEED,
    DistributedContext,
    FingerprintError,
    Region,
    ShardedTensor,
    TensorPartition,
    color_hidden_states,
    color_logits,
    colors,
    combined,
    common_width,
    coverage,
    descriptor,
    exact_all_reduce,
    expected_fingerprint,
    fingerprint,
    handoff_key,
    layer_key,
    ordered_sum,
    sample,
    sum_canary,
    total,
    verify_allgather,
    verify_allreduce,
    verify_alltoall,
    verify_broadcast,
    verify_coverage,
    verify_descriptors,
    verify_dp_gradients,
    verify_pipeline_handoff,
    verify_reduce_scatter,
    verify_replicated,
    verify_send_buffer,
)
from shardproof.synthesis.guard.fingerprint.floats import narrow, widen
from shardproof.synthesis.guard.fingerprint.outcome import Verdict

RNG = np.random.default_rng(0)
VOCAB = 32


def shards(n: int = 4) -> tuple[list[Any], tuple[TensorPartition, ...]]:
    parts = TensorPartition(dim=1, n_shards=n, shard_id=0, global_size=VOCAB).siblings()
    return [RNG.standard_normal((3, VOCAB // n)).astype("f4") for _ in parts], parts


def test_the_page_on_colors() -> None:
    """Shards of logits are colored, gathered and verified; hidden states as known before."""
    parts = [TensorPartition(dim=1, n_shards=4, shard_id=r, global_size=VOCAB) for r in range(4)]
    logits = [color_logits(np.empty((3, 8), "f4"), p, seed=GAY_SEED) for p in parts]
    assert verify_allgather(np.concatenate(logits, 1), parts, seed=GAY_SEED)
    bad = verify_allgather(np.concatenate([logits[0], logits[2], logits[1], logits[3]], 1), parts)
    assert bad.culprit_ranks == (1, 2)
    assert bad.probable_fault == "the place of rank 1 holds the shard of rank 2"
    tokens = [TensorPartition(0, 2, r, global_shape=(128, 16)) for r in range(2)]
    pieces = [color_hidden_states(np.empty((64, 16), "f4"), p, layer=5) for p in tokens]
    salt = layer_key(GAY_SEED, 5)
    fps = [fingerprint(x, p, salt) for x, p in zip(pieces, tokens, strict=True)]
    assert total(fps) == expected_fingerprint(GAY_SEED, 128, 16, layer=5)
    assert fps[0].value != 0


def test_the_page_with_seeds_in_their_place() -> None:
    """Seeds by position, and what every device computes adds up to what was known before."""
    tokens = [TensorPartition(dim=0, n_shards=2, shard_id=r, global_size=128) for r in range(2)]
    states = [color_hidden_states(np.empty((64, 16), "f4"), p, 7, 5) for p in tokens]
    shards = [ShardedTensor(x, p, 7, layer=5) for x, p in zip(states, tokens, strict=True)]
    assert sum(s.fingerprint for s in shards) == expected_fingerprint(7, 128, 16, layer=5)
    assert verify_allgather(np.concatenate(states), tokens, 7, layer=5)
    assert verify_allgather(np.concatenate(states), tokens, 7, layer=4).alarm
    logits = [color_logits(np.empty((3, 8), "f4"), p, 7) for p in shards_of(4)]
    assert verify_allgather(np.concatenate(logits, 1), shards_of(4), 7)
    xs = [sum_canary((3, 4), 2, r, 7) for r in range(2)]
    assert verify_allreduce(ordered_sum(xs), 2, 7)
    assert verify_reduce_scatter(ordered_sum(xs), TensorPartition(0, 1, 0, 3), 2, 7)
    x = np.ones((3, 4), "f4")
    sent = fingerprint(x, None, handoff_key(7, 0, 1, 16))
    assert verify_pipeline_handoff(x, 0, 1, 16, 7, sent_fp=sent)


def shards_of(n: int) -> tuple[TensorPartition, ...]:
    return TensorPartition(dim=1, n_shards=n, shard_id=0, global_size=VOCAB).siblings()


@pytest.mark.parametrize("tokens", [1, 3, 5000])
@pytest.mark.parametrize("dtype", ["f4", "u1", "f8"])
def test_expected_fingerprints_are_those_of_the_whole(tokens: int, dtype: str) -> None:
    region, salt = Region.whole((tokens, 17)), layer_key(3, 2)
    whole = fingerprint(colors(region, salt, dtype), region, salt)
    assert expected_fingerprint(3, tokens, 17, 2, dtype=dtype) == whole


def test_a_flip_before_a_tail_is_no_other_dtype() -> None:
    parts = TensorPartition(0, 1, 0, 5).siblings()
    x = np.arange(5, dtype="f4")
    sent = [fingerprint(x, parts[0], 1)]
    verdict = verify_allgather(flip_bits(x, [70]), parts, shard_fps=sent, key=1)
    assert verdict.culprit_ranks == (0,)
    assert "dtype" not in verdict.probable_fault


def test_zeros_after_what_was_sent_are_an_alarm() -> None:
    salt = handoff_key(GAY_SEED, 0, 1, 2)
    sent = fingerprint(np.array([1, 2, 3], "f4"), None, salt)
    assert verify_pipeline_handoff(np.array([1, 2, 3, 0], "f4"), 0, 1, 2, sent_fp=sent).alarm


X = np.ones((3, 8), "f4")
OF_5 = fingerprint(X, None, 5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: verify_broadcast(X, OF_5, 6), "fingerprints of key 0000000000000005"),
        (lambda: verify_broadcast(X, None, 6), "expected a fingerprint, got None"),  # type: ignore[arg-type]
        (lambda: verify_alltoall([X], [Region.whole((3, 8))], [OF_5], 6), "fingerprints of key"),
        (
            lambda: verify_coverage(
                [coverage(Region.whole((4,)), 1)], coverage(Region.whole((4,)), 2)
            ),
            "do not combine",
        ),
        (lambda: verify_dp_gradients([OF_5, OF_5]), "expected fingerprints by parameter"),  # type: ignore[arg-type]
        (lambda: verify_send_buffer(OF_5, fingerprint(X, None, 6), 0), "do not combine"),
        (lambda: verify_allgather(X, shards_of(1)[0]), "partition.siblings()"),  # type: ignore[arg-type]
        (lambda: verify_allgather(X, [Region.whole((3, 8))]), "expected TensorPartitions"),  # type: ignore[list-item]
        (lambda: verify_pipeline_handoff(X, "0", 1, 2), "a rank, layer or step is '0'"),  # type: ignore[arg-type]
        (lambda: verify_allreduce(X, 2.5), "n_ranks is 2.5, expected an integer"),  # type: ignore[arg-type]
        (lambda: verify_allreduce(X, 0, level="T2", samples=[]), "n_ranks is 0"),
        (lambda: verify_allreduce(X, 1, level="T2", samples=[3]), "level T2 takes samples, got 3"),  # type: ignore[list-item]
        (lambda: verify_allreduce(X, 1, level="T3", inputs=[[1.0]]), "rank 0: expected a numpy"),  # type: ignore[list-item]
        (
            lambda: verify_reduce_scatter(X, TensorPartition(0, 2, 0, 6), 2, level="T2"),
            "reduce_scatter: level T2",
        ),
        (lambda: sample(X, 1, samples=0), "samples is 0, expected at least 1"),
        (lambda: sample(X.astype("c8"), 1), "view complex numbers as pairs"),
        (lambda: sum_canary((3,), 2, 0, 1, "bfloat16"), "float32 with precision='bf16'"),
        (lambda: descriptor("op", "f4", 3, 2, 0), "expected a shape and the ranks"),  # type: ignore[arg-type]
        (lambda: DistributedContext("0", 2), "rank is '0', expected an integer"),  # type: ignore[arg-type]
        (lambda: DistributedContext(0, 2, n_layers=-3), "n_layers is -3"),
    ],
)
def test_what_cannot_be_checked_is_an_error_and_no_alarm(call: Any, said: str) -> None:
    with pytest.raises(FingerprintError) as error:
        call()
    assert said in str(error.value)


def test_model_values_are_no_canaries() -> None:
    verdict = verify_allreduce(RNG.standard_normal((3, 4)), 2)
    assert "were the inputs sum_canary with this key?" in verdict.probable_fault


def test_shards_that_are_no_whole_words() -> None:
    parts = TensorPartition(1, 3, 0, global_shape=(4, 9)).siblings()
    salt = layer_key(GAY_SEED, 2)
    pieces = [color_hidden_states(np.empty((4, 3), "f4"), p, layer=2) for p in parts]
    fps = [fingerprint(x, p, salt) for x, p in zip(pieces, parts, strict=True)]
    width = common_width(parts, 4)
    assert width == 4
    assert total(fps) == expected_fingerprint(GAY_SEED, 4, 9, layer=2, width=width)


def test_partitions_in_any_order_name_ranks() -> None:
    pieces, parts = shards()
    sent = [fingerprint(x, p, 7) for x, p in zip(pieces, parts, strict=True)]
    pieces[3] = flip_bits(pieces[3], [1])
    whole = np.concatenate(pieces, 1)
    verdict = verify_allgather(whole, parts[::-1], shard_fps=sent[::-1], key=7)
    assert verdict.culprit_ranks == (3,)


def test_a_canary_says_which_elements_are_there() -> None:
    parts = TensorPartition(0, 2, 0, global_shape=(8, 4)).siblings()
    whole = np.concatenate([color_logits(np.empty((4, 4)), p) for p in parts])
    shifted = np.roll(whole, 1)
    verdict = verify_allgather(shifted, parts)
    assert verdict.culprit_ranks == (0, 1)
    assert "has element 31 of the tensor where element 0 belongs" in verdict.probable_fault


@pytest.mark.parametrize(
    ("spoil", "ranks", "said"),
    [
        (lambda s: [s[0], flip_bits(s[1], [7]), *s[2:]], (1,), "other bits"),
        (lambda s: [s[0], s[1], np.zeros_like(s[2]), s[3]], (2,), "zeros: nothing was written"),
        (lambda s: [s[1], s[0], *s[2:]], (0, 1), "the place of rank 0 holds the shard of rank 1"),
        (lambda s: [*s[:3], s[0]], (3,), "the place of rank 3 holds the shard of rank 0"),
    ],
)
def test_a_live_all_gather(
    spoil: Callable[[list[Any]], list[Any]], ranks: tuple[int, ...], said: str
) -> None:
    pieces, parts = shards()
    sent = [fingerprint(x, p, 7) for x, p in zip(pieces, parts, strict=True)]
    assert verify_allgather(np.concatenate(pieces, 1), parts, shard_fps=sent, key=7)
    verdict = verify_allgather(np.concatenate(spoil(pieces), 1), parts, shard_fps=sent, key=7)
    assert verdict.alarm
    assert verdict.culprit_ranks == ranks
    assert said in verdict.probable_fault


def test_gathered_along_the_wrong_dim() -> None:
    pieces, parts = shards()
    sent = [fingerprint(x, p, 7) for x, p in zip(pieces, parts, strict=True)]
    stacked = np.concatenate(pieces, 0).reshape(3, VOCAB)
    assert verify_allgather(stacked, parts, shard_fps=sent, key=7).alarm


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"partitions": []}, "no partitions"),
        ({"partitions": "missing"}, "expected shards 0..3 of one partition, got shards [0, 1, 2]"),
        (
            {"partitions": [TensorPartition(d, 2, d, global_size=32) for d in (0, 1)]},
            "of partitions (dim, shards, size) [(0, 2, 32), (1, 2, 32)]",
        ),
        ({"shard_fps": "missing"}, "4 shards, 3 fingerprints"),
        ({"key": 8}, "fingerprints of key"),
        ({"gathered": np.zeros((3, 16), "f4")}, "expected 32 along dim 1, got [3, 16]"),
    ],
)
def test_an_all_gather_that_cannot_be_checked(change: dict[str, Any], said: str) -> None:
    pieces, parts = shards()
    sent = [fingerprint(x, p, 7) for x, p in zip(pieces, parts, strict=True)]
    given: dict[str, Any] = {
        "gathered": np.concatenate(pieces, 1),
        "partitions": parts,
        "shard_fps": sent,
        "key": 7,
    }
    for name, value in change.items():
        given[name] = given[name][:-1] if isinstance(value, str) else value
    with pytest.raises(FingerprintError) as error:
        verify_allgather(**given)
    assert said in str(error.value)


def test_another_dtype_of_what_was_gathered_is_said() -> None:
    pieces, parts = shards()
    sent = [fingerprint(x, p, 7) for x, p in zip(pieces, parts, strict=True)]
    wide = np.concatenate(pieces, 1).astype("f8")
    verdict = verify_allgather(wide, parts, shard_fps=sent, key=7)
    assert verdict.alarm
    assert "bytes of float64 where" in verdict.probable_fault


def test_broadcast_all_to_all_and_send_buffers() -> None:
    x = RNG.standard_normal((4, 8)).astype("f4")
    sent = fingerprint(x, None, 3)
    y = flip_bits(x, [100])
    assert verify_broadcast(x, sent, 3)
    assert verify_broadcast(y, sent, 3, rank=2).culprit_ranks == (2,)
    assert verify_send_buffer(sent, fingerprint(x, None, 3), 0)
    assert "race" in verify_send_buffer(sent, fingerprint(y, None, 3), 0).probable_fault
    regions = [Region((4, 8), (0, 0), (2, 8)), Region((4, 8), (2, 0), (2, 8))]
    pieces = [np.ascontiguousarray(r.cut(x)) for r in regions]
    fps = [fingerprint(p, r, 3) for p, r in zip(pieces, regions, strict=True)]
    assert verify_alltoall(pieces, regions, fps, 3)
    assert verify_alltoall(pieces[::-1], regions, fps, 3).culprit_ranks == (0, 1)


def bf16(x: Any) -> Any:
    return widen(narrow(x))


@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_levels_of_an_all_reduce(n: int, precision: str | None) -> None:
    once = bf16 if precision else (lambda x: x)
    xs = [once(RNG.standard_normal(8192).astype("f4")) for _ in range(n)]

    def add(some: list[Any]) -> Any:
        out = some[-1]
        for x in some[-2::-1]:
            out = once(out + x)
        return out

    def judge(y: Any, level: str) -> Verdict:
        return verify_allreduce(
            y,
            n,
            seed=9,
            level=level,  # type: ignore[arg-type]
            samples=[sample(x, 9, precision=precision) for x in xs],
            inputs=xs,
            precision=precision,
        )

    right = add(xs)
    assert judge(right, "T2")
    for wrong in (add(xs[1:]), add([*xs, xs[0]]), xs[0], right * n, right / n, np.roll(right, 64)):
        assert judge(once(wrong.astype("f4")), "T2").alarm
    if not precision:
        assert judge(ordered_sum(xs), "T3")
        assert judge(flip_bits(ordered_sum(xs), [64]), "T3").index_range == (2, 3)


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1.0, 1e37, 3e38])
@pytest.mark.parametrize("average", [False, True])
def test_no_alarm_at_the_ends_of_the_range(scale: float, average: bool) -> None:
    with np.errstate(all="ignore"):
        xs = [(RNG.standard_normal(500) * scale).astype("f4") for _ in range(3)]
        y = ordered_sum(xs)
        y = (y / np.float32(3)) if average else y
        given: dict[str, Any] = {
            "samples": [sample(x, 1) for x in xs],
            "average": average,
        }
        verdict = verify_allreduce(y, 3, seed=1, level="T2", **given)
        assert not verdict.alarm
        assert verdict or scale > 1e37


def test_infinities_are_skipped_and_said_so() -> None:
    x = np.full(64, np.inf, "f4")
    y = np.ones(64, "f4")
    some = [sample(v, 1) for v in (x, y)]
    verdict = verify_allreduce(x + y, 2, seed=1, level="T2", samples=some)
    assert verdict.status == "skipped"
    assert not verdict
    assert not verdict.alarm


def test_signalling_nans_are_looked_at_quietly() -> None:
    x = np.full(64, 0x7F800001, "u4").view("f4")
    y = RNG.standard_normal(64).astype("f4")
    some = [sample(y, 1)] * 2
    assert verify_allreduce(x, 2, seed=1, level="T2", samples=some).alarm
    assert verify_allreduce(x, 2, seed=1, level="T3", inputs=[y, y]).alarm
    assert verify_allreduce(x, 2, seed=1).alarm


def test_an_infinity_that_no_sum_gives_is_an_alarm() -> None:
    xs = [RNG.standard_normal(64).astype("f4") for _ in range(2)]
    y = xs[0] + xs[1]
    y[5] = np.inf
    some = [sample(x, 1) for x in xs]
    assert verify_allreduce(y, 2, seed=1, level="T2", samples=some).alarm


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [("f4", None), ("f2", None), ("f8", None), ("f4", "bf16"), ("i4", None), ("u1", None)],
)
@pytest.mark.parametrize("n", [2, 3, 64, 300])
def test_canary_sums_are_exact_and_name_the_fault(
    dtype: str, precision: str | None, n: int
) -> None:
    given: dict[str, Any] = {"dtype": dtype, "precision": precision}
    xs = [sum_canary((400,), n, r, 5, **given) for r in range(n)]
    y = np.sum(xs[::-1], axis=0, dtype=dtype)
    assert verify_allreduce(y, n, seed=5, precision=precision)
    if precision:
        assert np.array_equal(bf16(y), y)
    missing = verify_allreduce((y - xs[1]).astype(dtype), n, seed=5, precision=precision)
    assert missing.alarm
    if n > 2:  # of two ranks, one missing is the other as it was
        assert missing.probable_fault == "rank 1 is missing"
    assert verify_allreduce(xs[0], n, seed=5, precision=precision).alarm
    part = TensorPartition(0, 2, 1, global_shape=(400,))
    assert verify_reduce_scatter(y[200:], part, n, seed=5, precision=precision)
    assert verify_reduce_scatter(y[:200], part, n, seed=5, precision=precision).alarm


def test_replicas_and_gradients_by_majority() -> None:
    x = RNG.standard_normal(64).astype("f4")
    good, bad = fingerprint(x, None, 1), fingerprint(flip_bits(x, [3]), None, 1)
    assert verify_replicated([good, good, good])
    assert verify_replicated([good, bad, good]).culprit_ranks == (1,)
    assert verify_replicated([good, bad]).culprit_ranks == ()
    assert verify_dp_gradients({"w": [good, good]})
    assert verify_dp_gradients({"w": [good, good], "b": [good, bad]}).op == "gradient of b"


def test_one_verdict_of_all_ranks() -> None:
    good, bad = Verdict("passed", "op", "H"), Verdict("failed", "op", "H", rank=3)
    assert combined([good, bad, good]) is bad
    assert combined([good, Verdict("skipped", "op", "H")]).status == "skipped"
    with pytest.raises(FingerprintError, match="nothing was checked"):
        combined([])


def test_descriptors() -> None:
    mine = descriptor("all_reduce", "f4", (3, 4), (0, 1), 7)
    assert verify_descriptors([mine, mine], mine)
    other = descriptor("all_reduce", "f4", (3,), (4, 0, 1), 7)
    assert verify_descriptors([mine, mine, other]).culprit_ranks == (2,)
    assert verify_descriptors([other, other], mine).alarm


def test_an_exact_all_reduce_names_its_step() -> None:
    xs = [RNG.standard_normal((3, 5)).astype("f4") for _ in range(4)]
    done = exact_all_reduce(xs, 1)
    assert done.verdict
    assert all(np.array_equal(y, ordered_sum(xs)) for y in done.outputs)

    def add(rank: int, pieces: Any) -> Any:
        return flip_bits(ordered_sum(pieces), [0]) if rank == 2 else ordered_sum(pieces)

    bad = exact_all_reduce(xs, 1, add=add).verdict
    assert (bad.op, bad.culprit_ranks) == ("local sum", (2,))


ROUTE = {"from_rank": 0, "to_rank": 1, "layer": 16}


def test_a_handoff_on_colors_and_live() -> None:
    x = RNG.standard_normal((3, 5)).astype("f4")
    sent = fingerprint(x, None, handoff_key(GAY_SEED, **ROUTE))
    assert verify_pipeline_handoff(x, **ROUTE, seed=GAY_SEED, sent_fp=sent)
    assert verify_pipeline_handoff(flip_bits(x, [0]), **ROUTE, sent_fp=sent).culprit_ranks == (0,)
    wrong = verify_pipeline_handoff(x, **{**ROUTE, "layer": 17}, sent_fp=sent)
    assert "another stage, layer" in wrong.probable_fault
    assert verify_pipeline_handoff(np.zeros((4, 4), "f4"), **ROUTE).alarm


@pytest.mark.parametrize(
    ("level", "said"),
    [("R", "replicas of each of 2"), ("T2", "samples"), ("T3", "inputs")],
)
def test_a_level_asks_for_what_it_takes(level: Any, said: str) -> None:
    with pytest.raises(FingerprintError) as error:
        verify_allreduce(np.zeros(3, "f4"), 2, level=level)
    assert said in str(error.value)


def test_a_reduce_scatter_of_real_data() -> None:
    xs = [RNG.standard_normal((8, 4)).astype("f4") for _ in range(3)]
    part = TensorPartition(0, 2, 1, global_shape=(8, 4))
    cuts = [np.ascontiguousarray(part.region().cut(x)) for x in xs]
    piece = ordered_sum(cuts)
    some = [sample(c, GAY_SEED) for c in cuts]
    assert verify_reduce_scatter(piece, part, 3, level="T2", samples=some)
    wrong = verify_reduce_scatter(ordered_sum(xs)[:4], part, 3, level="T3", inputs=cuts)
    assert (wrong.op, wrong.alarm) == ("reduce_scatter", True)


def test_fingerprints_of_other_keys_are_no_alarm_but_an_error() -> None:
    x = np.ones((3, 4), "f4")
    for replicas in ([1, 1], [GAY_SEED, 1]):
        fps = [fingerprint(x, None, k) for k in replicas]
        with pytest.raises(FingerprintError, match="different keys"):
            verify_allreduce(x, 2, level="R", replicas=fps)
    fps = [fingerprint(x, None, GAY_SEED)] * 2
    assert verify_allreduce(x, 2, level="R", replicas=fps)
    assert "none of the copies" in str(verify_allreduce(x + 1, 2, level="R", replicas=fps))


def test_samples_of_integers_are_refused() -> None:
    with pytest.raises(FingerprintError, match="sums of integers are exact"):
        sample(np.arange(3), 1)


@pytest.mark.parametrize(("layers", "ranks"), [(32, 4), (5, 4), (3, 8)])
def test_every_layer_has_one_rank(layers: int, ranks: int) -> None:
    ranges = [DistributedContext(r, ranks, n_layers=layers).layer_range for r in range(ranks)]
    assert [i for r in ranges for i in r] == list(range(1, layers + 1))
