"""The layers of examples/numpy_tp.py are those of one device; the wrong variants are not."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardproof.verifier.verdict import Counterexample, Proof

PATH = Path(__file__).parents[3] / "examples" / "numpy_tp.py"
tp = SimpleNamespace(**runpy.run_path(str(PATH)))
RNG = np.random.default_rng(3)
RANKS = [1, 2, 4, 8]


def draw(kind: str, *shape: int) -> Any:
    if kind == "integers":
        return RNG.integers(-9, 10, shape).astype(float)
    return RNG.standard_normal(shape)


def equal(kind: str, a: Any, b: Any) -> bool:
    if kind == "integers":
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=1e-12, atol=1e-12)


def bad_column(x: Any, W: Any, n: int) -> Any:
    return sum(x @ w.T for w in np.split(W, n))


def bad_row(x: Any, W: Any, n: int) -> Any:
    parts = zip(np.split(x, n, 1), np.split(W, n, 1), strict=True)
    return np.concatenate([a @ b.T for a, b in parts], axis=1)


def relu_early(x: Any, W: Any, n: int) -> Any:
    parts = zip(np.split(x, n, 1), np.split(W, n, 1), strict=True)
    return sum(np.maximum(a @ b.T, 0) for a, b in parts)


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("kind", ["integers", "floats"])
@pytest.mark.parametrize("batch", [1, 5])
def test_the_ranks_compute_the_layer(kind: str, n: int, batch: int) -> None:
    x, W, b = draw(kind, batch, 8), draw(kind, 24, 8), draw(kind, 24)
    W1, W2 = draw(kind, 8, 16), draw(kind, 16, 24)
    runs = (
        (tp.column_parallel, (x, W, n, b), x @ W.T + b, "all_gather"),
        (tp.row_parallel, (x, W, n, b), x @ W.T + b, "all_reduce"),
        (tp.mlp_tp, (x, W1, W2, n), np.maximum(x @ W1, 0) @ W2, "all_reduce"),
    )
    for function, given, want, op in runs:
        comm = tp.Communicator()
        assert equal(kind, function(*given, comm=comm), want)
        assert dict(comm.calls) == ({op: 1} if n > 1 else {})
        assert all(comm.verdicts)
        assert bool(comm.verdicts) == (n > 1)


@pytest.mark.parametrize("lead", [(), (0,), (2, 3)])
@pytest.mark.parametrize("dtype", ["f8", "f2", "i8", "u1"])
def test_rows_of_any_number(lead: tuple[int, ...], dtype: str) -> None:
    x, W = RNG.integers(0, 4, (*lead, 8)).astype(dtype), RNG.integers(0, 4, (4, 8)).astype(dtype)
    for y in (tp.column_parallel(x, W, 2), tp.row_parallel(x, W, 4)):
        assert np.array_equal(y, x @ W.T)
        assert y.dtype == x.dtype
    assert np.array_equal(tp.mlp_tp(x, W.T, W, 4), np.maximum(x @ W.T, 0) @ W)


def test_a_fault_is_an_error_where_nobody_asks_for_the_verdicts() -> None:
    x, W = draw("floats", 3, 8), draw("floats", 8, 8)
    comm = tp.Communicator(tamper=tp.swapped, raises=True)
    with pytest.raises(RuntimeError, match="the place of rank 0 holds the shard of rank 1"):
        tp.column_parallel(x, W, 4, comm=comm)


@pytest.mark.parametrize("n", [2, 4])
def test_wrong_variants_differ(n: int) -> None:
    x, W = draw("integers", 3, 8), draw("integers", 8, 8)
    dense = x @ W.T
    for wrong in (bad_column(x, W, n), bad_row(x, W, n)):
        assert wrong.shape != dense.shape
    assert not np.array_equal(relu_early(x, W, n), np.maximum(dense, 0))
    comm = tp.Communicator(tamper=tp.swapped)
    assert not np.array_equal(tp.column_parallel(x, W, n, comm=comm), dense)
    assert [v.culprit_ranks for v in comm.verdicts] == [(0, 1)]
    late = tp.Communicator(tamper=lambda op, pieces: [pieces[0] * 0, *pieces[1:]])
    assert not np.array_equal(tp.row_parallel(x, W, n, comm=late), dense)
    assert [v.check for v in late.verdicts if v.alarm] == ["T3", "T2"]


@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_programs_are_proved(n: int) -> None:
    for name, *case in tp.right_programs(n):
        assert isinstance(tp.judge(*case), Proof), name


@pytest.mark.parametrize("n", [2, 4])
def test_the_wrong_programs_are_refuted(n: int) -> None:
    for name, *case in tp.wrong_programs(n):
        assert isinstance(tp.judge(*case), Counterexample), name


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x, W: tp.column_parallel(x, W, 5), "W's output dim is 24, which 5 ranks cannot"),
        (lambda x, W: tp.row_parallel(x, W, 3), "W's input dim is 8, which 3 ranks cannot"),
        (lambda x, W: tp.column_parallel(x, W, 48), "which 48 ranks cannot share equally"),
        (lambda x, W: tp.row_parallel(x, W, 0), "which 0 ranks cannot"),
        (lambda x, W: tp.row_parallel(x, W.T, 2), "columns of x and of W: 8 and 24 differ"),
        (lambda x, W: tp.mlp_tp(x, W, W, 2), "columns of x and rows of W1: 8 and 24 differ"),
        (lambda x, W: tp.column_parallel(x, W[0], 2), "W: expected a matrix of numbers"),
        (lambda x, W: tp.column_parallel(x.sum(), W, 2), "x: expected rows of numbers"),
        (
            lambda x, W: tp.column_parallel(x.tolist(), W, 2),
            "x: expected rows of numbers, got list",
        ),
        (lambda x, W: tp.column_parallel(x.astype(str), W, 2), "x: expected rows of numbers"),
        (lambda x, W: tp.column_parallel(x, W, 2.0), "num_ranks: expected an integer, got 2.0"),
        (lambda x, W: tp.row_parallel(x, W, "2"), "num_ranks: expected an integer, got '2'"),
        (lambda x, W: tp.column_parallel(x, W[:0], 2), "W's output dim is 0, which 2 ranks"),
        (lambda x, W: tp.column_parallel(x, W, 2, np.ones(3)), "bias: expected shape (24,)"),
        (lambda x, W: tp.row_parallel(x, W, 2, np.ones(1)), "bias: expected shape (24,), got (1,)"),
    ],
)
def test_bad_input_is_one_clear_error(call: Any, said: str) -> None:
    with pytest.raises(ValueError) as error:
        call(np.ones((3, 8)), np.ones((24, 8)))
    assert said in str(error.value)


def test_the_example_prints_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(PATH), run_name="__main__")
    out = capsys.readouterr().out
    assert out.count("proved") == 9
    assert out.count("refuted") == 4
    assert out.count("passed") == 3 + 6 + 6
    assert "the place of rank 0 holds the shard of rank 1" in out
