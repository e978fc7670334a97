"""T2 raises no alarm on sums of any data, in any order; what it passes over it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardproof.synthesis.guard.fingerprint import (
    FingerprintError,
    ordered_sum,
    sample,
    verify_allreduce,
)
from shardproof.synthesis.guard.fingerprint.floats import FORMATS, narrow, widen
from shardproof.synthesis.guard.fingerprint.outcome import Verdict

EXPONENTS = {"f32": (-149, 127), "bf16": (-133, 127), "f16": (-24, 15), "f64": (-1074, 1023)}
DTYPES = {"f32": "f4", "bf16": "f4", "f16": "f2", "f64": "f8"}
KINDS = ("range", "subnormal", "top", "cancelling")
ORDERS = ("ring", "tree", "wide", "each its own")
Rng = np.random.Generator


def once(x: Any, form: str) -> Any:
    return widen(narrow(x.astype("f4"))) if form == "bf16" else x.astype(DTYPES[form])


def draw(rng: Rng, form: str, kind: str, n: int, size: int) -> list[Any]:
    low, high = EXPONENTS[form]
    first, last = {
        "range": (low, high - 3), "subnormal": (low, low + 14), "top": (high - 5, high),
        "cancelling": (-4, 4),
    }[kind]  # fmt: skip
    values = rng.uniform(1, 2, (n, size)) * rng.choice([-1, 1], (n, size))
    xs = [once(np.ldexp(v, rng.integers(first, last, size)), form) for v in values]
    if kind == "cancelling":
        xs[1::2] = [once(-x * (1 + 2.0**-7), form) for x in xs[: n // 2 * 2 : 2]]
    return xs


def add(rng: Rng, xs: list[Any], form: str, how: str, flush: bool) -> Any:
    def step(x: Any) -> Any:
        y = once(x, form)
        return np.where(np.abs(y) < FORMATS[form].smallest_normal, 0 * y, y) if flush else y

    work = [step(x) for x in xs]
    if how == "wide" and form != "f64":
        return step(np.sum([x.astype("f8") for x in work], axis=0))
    if how == "tree":
        while len(work) > 1:
            pairs = [step(a + b) for a, b in zip(work[::2], work[1::2], strict=False)]
            work = pairs + work[len(pairs) * 2 :]
        return work[0]
    y = np.empty_like(work[0])
    for i in range(4):
        order = rng.permutation(len(work)) if how == "each its own" else range(len(work))
        some = [work[k][i::4] for k in order]
        total = some[0]
        for x in some[1:]:
            total = step(total + x)
        y[i::4] = total
    return y


def judge(y: Any, xs: list[Any], form: str, salt: int, **given: Any) -> Verdict:
    p = "bf16" if form == "bf16" else None
    some = [sample(x, salt, precision=p) for x in xs]
    return verify_allreduce(y, len(xs), salt, level="T2", samples=some, precision=p, **given)


@pytest.mark.parametrize("form", DTYPES)
@pytest.mark.parametrize("average", [None, "before", "after"])
def test_no_alarm_on_adversarial_data(form: str, average: str | None) -> None:
    rng = np.random.default_rng(11)
    for i in range(96):
        kind, how, flush = KINDS[i % 4], ORDERS[i // 4 % 4], i % 3 == 0
        n, size = int(rng.choice([1, 2, 3, 8, 33])), int(rng.choice([1, 7, 64, 300]))
        with np.errstate(all="ignore"):
            xs = draw(rng, form, kind, n, size)
            inverse = once(np.array(1 / n), form)
            terms = [once(x * inverse, form) for x in xs] if average == "before" else xs
            y = add(rng, terms, form, how, flush)
            if average == "after":
                y = add(rng, [y / np.asarray(n, y.dtype)], form, "ring", flush)
        verdict = judge(y, xs, form, i, average=bool(average), flushes_subnormals=flush)
        assert not verdict.alarm, (kind, how, flush, n, size, str(verdict))


@pytest.mark.parametrize("n", [255, 256, 700])
def test_sums_of_bf16_over_many_ranks_have_a_bound(n: int) -> None:
    rng = np.random.default_rng(n)
    xs = [once(np.abs(rng.standard_normal(200)), "bf16") for _ in range(n)]
    y = add(rng, xs, "bf16", "ring", False)
    assert judge(y, xs, "bf16", 3)
    assert judge(y * np.float32(64), xs, "bf16", 3).alarm


def test_bits_of_bf16_are_taken_as_they_are() -> None:
    rng = np.random.default_rng(0)
    xs = [once(rng.standard_normal(100), "bf16") for _ in range(3)]
    y = add(rng, xs, "bf16", "ring", False)
    assert judge(narrow(y), [narrow(x) for x in xs], "bf16", 1) == judge(y, xs, "bf16", 1)
    with pytest.raises(FingerprintError, match="bf16 values come as float32"):
        sample(np.zeros(3, "i2"), 1, precision="bf16")


def test_which_nan_a_sum_keeps_is_no_alarm() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        xs = [rng.standard_normal(int(rng.integers(1, 200))).astype("f4")]
        xs.append(rng.standard_normal(xs[0].size).astype("f4"))
        for x in xs:
            odd = rng.random(x.size) < 0.5
            bits = 0x7FC00000 | rng.integers(1, 1 << 22, x.size) | rng.integers(0, 2, x.size) << 31
            x.view("u4")[odd] = bits.astype("u4")[odd]
        y = ordered_sum([xs[1], xs[0]])
        assert verify_allreduce(y, 2, 1, level="T3", inputs=xs)
        assert verify_allreduce(np.nan_to_num(y), 2, 1, level="T3", inputs=xs).alarm == bool(
            np.any(np.isnan(y))
        )


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_an_average_summed_in_order(dtype: str) -> None:
    xs = [np.random.default_rng(i).standard_normal((3, 5)).astype(dtype) for i in range(3)]
    y = (ordered_sum(xs) / 3).astype(dtype)
    assert verify_allreduce(y, 3, 1, level="T3", inputs=xs, average=True)
    assert verify_allreduce(ordered_sum(xs), 3, 1, level="T3", inputs=xs, average=True).alarm
    with pytest.raises(FingerprintError, match="is not a sum"):
        verify_allreduce(
            np.ones(3, "i8"), 1, 1, level="T3", inputs=[np.ones(3, "i8")], average=True
        )
