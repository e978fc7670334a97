"""The hashes: vectors, sums of pieces, every bit, and what the guard would miss if it were less."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.fault_kinds import flip_bits
from shardproof.synthesis.guard.fingerprint import (
    FingerprintError,
    Fp,
    Region,
    ShardedTensor,
    TensorPartition,
    colors,
    combined_fingerprint,
    common_width,
    coverage,
    decode,
    fingerprint,
    key,
    shard_fingerprint,
    total,
    verify_coverage,
)
from shardproof.synthesis.guard.fingerprint.mix import fmix, splitmix64, unfmix_array

U64 = st.integers(0, 2**64 - 1)


def test_vectors() -> None:
    assert [splitmix64(i) for i in (0, 1, 1069)] == [
        0xE220A8397B1DCDAF,
        0x910A2DEC89025CC1,
        0x97629500787D9C76,
    ]
    k = key(1069, 1, 5, 0, 0)
    assert (key(1069), k) == (0x97629500787D9C76, 0x7EE06FD75515C596)
    assert colors(Region.whole((3,)), k, "u8").tolist() == [
        0x67797BCA003BAB5A,
        0x2971F293C2E8F967,
        0xFDD456D1591CF528,
    ]
    assert fingerprint(np.arange(4, dtype="u8")).value == 0xE78A2C0209EF8356
    one = fingerprint(np.zeros(1, "u8"), Region((2,), (1,), (1,)))
    assert one.value == 0x48218226FF3CD4BF
    assert coverage(Region.whole((128,)), key(1069, 0)).value == 0xA597B060336E71CB


def test_vectors_of_shards() -> None:
    def of(data: np.ndarray[Any, Any], *region: tuple[int, ...]) -> int:
        where = Region(*region) if region else None
        return fingerprint(data, where, 1069, width=4).value

    x = np.arange(8, dtype="f4")
    assert of(x) == of(x.reshape(2, 4)) == 0xB792F983D676C7E8
    assert of(x[:4], (8,), (0,), (4,)) == 0x8700C18D2E99CE00
    assert of(x[4:], (8,), (4,), (4,)) == 0x309237F6A7DCF9E8
    assert of(x.reshape(2, 4)[:, :2], (2, 4), (0, 0), (2, 2)) == 0xC59D628495D77BF6
    assert of(x.reshape(2, 4)[:, 2:], (2, 4), (0, 2), (2, 2)) == 0xF1F596FF409F4BF2
    swapped = np.concatenate([x[2:4], x[:2], x[4:]])
    assert of(swapped) == 0xE048EC167153E846
    bf16 = (np.array([1, -1, 2, 0], "f4").view("u4") >> 16).astype("u2")
    assert fingerprint(bf16, None, 42, width=2).value == 0x60D0429BAB316109


@given(U64)
def test_the_mixer_is_a_bijection(x: int) -> None:
    assert unfmix_array(np.array([fmix(x)], np.uint64)) == x


@st.composite
def partitions(draw: st.DrawFn) -> tuple[TensorPartition, ...]:
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    dim = draw(st.integers(0, len(shape) - 1))
    n = draw(st.integers(1, 9))
    return TensorPartition(dim, n, 0, global_shape=shape, uneven=True).siblings()


@settings(max_examples=60, deadline=None)
@given(partitions(), st.sampled_from(["f4", "f2", "f8", "u1", "c16", "?"]), U64, st.randoms())
def test_pieces_add_up_in_any_order(
    parts: tuple[TensorPartition, ...], dtype: str, salt: int, random: Any
) -> None:
    shape = parts[0].global_shape
    assert shape is not None
    raw = np.random.default_rng(salt).integers(0, 2, prod(shape) * np.dtype(dtype).itemsize)
    x = raw.astype("u1").view(dtype).reshape(shape)
    pieces = [(p.region().cut(x), p) for p in parts]
    fps = [fingerprint(d, p, salt) for d, p in pieces]
    random.shuffle(fps)
    width = common_width(parts, x.dtype.itemsize)
    whole = fingerprint(x, None, salt, width=width)
    assert total(fps) == whole
    assert whole - fps[0] == total([*fps[1:], replace(fps[0], value=0, count=0)])
    claims = [coverage(p, salt) for p in parts]
    assert verify_coverage(claims, coverage(Region.whole(shape), salt))
    painted = np.concatenate([colors(p, salt, dtype) for p in parts], axis=parts[0].dim)
    assert painted.tobytes() == colors(Region.whole(shape), salt, dtype, width=width).tobytes()


def test_shards_with_their_partitions() -> None:
    x = np.random.default_rng(0).standard_normal((6, 8)).astype("f4")
    parts = TensorPartition(1, 2, 0, global_shape=x.shape).siblings()
    shards = [ShardedTensor(p.region().cut(x), p, seed=4) for p in parts]
    assert combined_fingerprint(shards) == fingerprint(x, None, key(4))
    assert combined_fingerprint(shards) - shard_fingerprint(shards[0]) == shard_fingerprint(
        shards[1]
    )
    assert sum(s.fingerprint for s in shards) == combined_fingerprint(shards)


@pytest.mark.parametrize("dtype", ["f4", "u2"])
def test_every_single_bit_counts(dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((16, 12)).astype(dtype)
    want = fingerprint(x, None, 1)
    assert all(fingerprint(flip_bits(x, [b]), None, 1) != want for b in range(0, 8 * x.nbytes, 5))


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8", "?", "c8"])
def test_zeros_after_the_end_count(dtype: str) -> None:
    """The last word is filled up with zeros; the number of bytes tells it from zeros that are."""
    for size in range(9):
        x = np.ones(size, dtype)
        assert fingerprint(x) != fingerprint(np.concatenate([x, np.zeros(1, dtype)]))
    assert fingerprint(np.ones(3, dtype)).count == np.ones(3, dtype).nbytes


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
def test_permutations_inside_a_word_count(dtype: str) -> None:
    x = np.arange(1, 1 + 8 // np.dtype(dtype).itemsize).astype(dtype)
    rng = np.random.default_rng(0)
    others = {tuple(rng.permutation(x).tolist()) for _ in range(50)} - {tuple(x.tolist())}
    found = {fingerprint(np.array(o, dtype)).value for o in others}
    assert len(found | {fingerprint(x).value}) == len(others) + 1


@settings(max_examples=200, deadline=None)
@given(partitions(), st.sampled_from([1, 2, 4, 8, 16]))
def test_the_first_and_last_shard_say_how_all_are_read(
    parts: tuple[TensorPartition, ...], itemsize: int
) -> None:
    def by_bases(region: Region) -> bool:
        runs, per_word = region.runs(), max(1, 8 // itemsize)
        last = len(runs.bases) == 1 and region.bounds[1] == prod(region.global_shape)
        whole = runs.length % per_word == 0 or last
        return whole and not np.any(runs.bases % np.uint64(per_word))

    regions = [p.region() for p in parts]
    width = 8 if all(by_bases(r) for r in regions if r.count) else itemsize
    assert common_width(parts, itemsize) == width if itemsize < 8 else 8
    assert common_width(parts[0].extremes(), itemsize) == common_width(parts, itemsize)
    assert np.array_equal(
        np.sort(np.concatenate([p.indices().reshape(-1) for p in parts])),
        np.arange(prod(regions[0].global_shape)),
    )


def test_many_shards_take_no_longer() -> None:
    part = TensorPartition(0, 100_000, 7, global_shape=(400_000, 64))
    assert fingerprint(np.zeros(part.local_shape, "f4"), part).width == 8


def test_numbers_of_numpy_are_numbers() -> None:
    for kind in (np.int64, np.uint64, np.int32):
        assert key(kind(3), kind(4), "a") == key(3, 4, "a")  # type: ignore[arg-type]
        assert fingerprint(np.ones(3), None, kind(5)) == fingerprint(np.ones(3), None, 5)  # type: ignore[arg-type]
    assert TensorPartition(np.int64(0), 2, 1, np.int32(4)) == TensorPartition(0, 2, 1, 4)  # type: ignore[arg-type]


def test_bits_are_compared_not_values() -> None:
    zeros = np.array([0.0, -0.0, np.nan], "f4")
    assert fingerprint(zeros) == fingerprint(zeros.copy())
    assert fingerprint(zeros) != fingerprint(np.abs(zeros))


def test_colors_tell_where_they_came_from() -> None:
    found = colors(Region((100,), (40,), (20,)), 5, "u8")
    assert decode(found, 5).tolist() == list(range(40, 60))
    halves = colors(Region.whole((4, 8)), 5, "f4")
    assert decode(halves[1], 5).tolist() == [4, 5, 6, 7]


def test_a_region_of_two_split_dims() -> None:
    x = np.random.default_rng(0).standard_normal((4, 6, 8)).astype("f4")
    boxes = [Region(x.shape, (0, i, j), (4, 3, 4)) for i in (0, 3) for j in (0, 4)]
    assert total(fingerprint(r.cut(x), r, 9) for r in boxes) == fingerprint(x, None, 9)


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ([(0, 4), (4, 2)], "2 places unclaimed"),
        ([(0, 5), (4, 4)], "1 places too many"),
        ([(0, 4), (3, 4)], "claimed twice"),
    ],
)
def test_claims_that_do_not_cover(claims: list[tuple[int, int]], said: str) -> None:
    fps = [coverage(Region((8,), (a,), (n,)), 3) for a, n in claims]
    verdict = verify_coverage(fps, coverage(Region.whole((8,)), 3))
    assert verdict.alarm
    assert said in verdict.probable_fault


def xor(a: Fp, b: Fp) -> int:
    return a.value ^ b.value


def test_what_a_lesser_hash_would_miss() -> None:
    """Sums keep how often; salts keep where; keys keep when."""
    x = np.arange(8, dtype="u8")
    half = Region((8,), (0,), (4,))
    assert xor(fingerprint(x[:4], half), fingerprint(x[:4], half)) == 0
    twice = fingerprint(x[:4], half) + fingerprint(x[:4], half)
    assert twice.value != 0
    assert twice.count == 64
    assert fingerprint(x) != fingerprint(x[::-1])
    assert (
        fingerprint(x, None, key(1, "step", 1)).value
        != fingerprint(x, None, key(1, "step", 2)).value
    )
    assert key(1, 2, 3) != key(1, 3, 2)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fingerprint([1.0]), "expected a numpy array, got list"),  # type: ignore[arg-type]
        (lambda: fingerprint(np.array(["a"])), "dtype <U1 has no fixed bits"),
        (lambda: fingerprint(np.array([None])), "dtype object has no fixed bits"),
        (lambda: fingerprint(np.zeros(2, ">f4")), "byte order"),
        (lambda: fingerprint(np.zeros(3, "f4"), Region((6, 3), (0, 0), (2, 3))), "of shape [3]"),
        (lambda: fingerprint(np.zeros(4, "f4"), width=2), "words of 2 bytes"),
        (lambda: fingerprint(np.zeros(1), key=1) + fingerprint(np.zeros(1), key=2), "combine"),
        (lambda: Fp.from_json({"value": 3}), "a reported fingerprint"),
        (lambda: Fp.from_json([1]), "a reported fingerprint"),
        (lambda: total([]), "no pieces"),
        (lambda: fingerprint(np.zeros(1)) ^ fingerprint(np.zeros(1)), "combine by +"),
        (lambda: key("a"), "the seed is 'a', expected an integer"),  # type: ignore[arg-type]
        (lambda: key(1, 1.5), "a tag is 1.5, expected an integer"),  # type: ignore[arg-type]
        (lambda: fingerprint(np.zeros(3), 1069), "expected a TensorPartition or a Region"),  # type: ignore[arg-type]
        (lambda: fingerprint(np.ma.masked_array([1.0], [True])), "got MaskedArray"),
        (lambda: colors(Region.whole((3,)), 1, "bfloat16"), "to move bfloat16 take uint16"),
        (lambda: TensorPartition(0, 2, 0, global_shape=(4.0, 2)), "an extent is 4.0"),  # type: ignore[arg-type]
        (lambda: TensorPartition(0, 2, 0, global_shape=4), "expected a global_shape, got 4"),  # type: ignore[arg-type]
        (lambda: ShardedTensor(np.zeros(3), 3), "expected a TensorPartition, got 3"),  # type: ignore[arg-type]
        (lambda: combined_fingerprint([np.zeros(3)]), "expected a ShardedTensor, got ndarray"),  # type: ignore[list-item]
        (lambda: total([3]), "expected a fingerprint, got 3"),  # type: ignore[list-item]
        (lambda: Region((4,), (2,), (3,)), "does not lie in a tensor of shape [4]"),
        (lambda: TensorPartition(0, 4, 0, 10), "shards of [3, 3, 3, 1]: say uneven=True"),
        (lambda: TensorPartition(0, 9, 0, 8), "9 shards of 8 rows leave ranks without any"),
        (lambda: TensorPartition(0, 4, 4, 8), "shard 4 is not one of 0..3"),
        (lambda: TensorPartition(-1, 4, 0, 8), "counted from 0"),
        (lambda: TensorPartition(2, 2, 0, global_shape=(4, 4)), "no such dim"),
        (lambda: TensorPartition(0, 2.5, 0, 8), "n_shards is 2.5, expected an integer"),  # type: ignore[arg-type]
        (lambda: TensorPartition(0, 2, 0), "give global_size or global_shape"),
        (lambda: TensorPartition(0, 2, 0, 8).region(), "give global_shape"),
        (
            lambda: ShardedTensor(np.zeros((3, 2)), TensorPartition(0, 2, 1, 8)),
            "expected shape [4, 2], got [3, 2]",
        ),
    ],
)
def test_bad_input_is_one_clear_error(call: Any, said: str) -> None:
    with pytest.raises(FingerprintError) as error:
        call()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_fingerprints_travel_as_json() -> None:
    fp = fingerprint(np.arange(3.0), None, 2**64 - 1)
    assert Fp.from_json(fp.to_json()) == fp
