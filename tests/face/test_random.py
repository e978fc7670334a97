"""Random class programs against a numpy run of every rank that knows nothing of the core."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.face.cases import TP, Case
from verifier import (
    Add,
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    IROp,
    LayerNorm,
    LossScale,
    MatMul,
    Multiply,
    Program,
    ReduceScatter,
    ReLU,
    Softmax,
    Transpose,
    ZeROPartitionOptState,
)

Array = np.ndarray
N, SIZE, EACH = 2, 8, 120
FOLD: dict[str, Callable[[list[Array]], Array]] = {
    "sum": lambda parts: np.sum(parts, axis=0),
    "mean": lambda parts: np.mean(parts, axis=0),
    "max": lambda parts: np.max(parts, axis=0),
}


def computed(op: IROp, *args: Array) -> Array:
    match op:
        case MatMul():
            return args[0] @ args[1]
        case Add():
            return args[0] + args[1]
        case Multiply():
            return args[0] * args[1]
        case ReLU():
            return np.maximum(args[0], 0)
        case Transpose():
            return args[0].T
        case LossScale():
            return args[0] * float(op.scale)
        case Softmax():
            e = np.exp(args[0] - args[0].max(1, keepdims=True))
            return e / e.sum(1, keepdims=True)
        case LayerNorm():
            centred = args[0] - args[0].mean(1, keepdims=True)
            return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    raise TypeError(op)


def exchanged(op: IROp, parts: list[Array]) -> list[Array]:
    match op:
        case AllReduce():
            return [FOLD[op.op_type](parts)] * N
        case AllGather():
            return [np.concatenate(parts, op.gather_dim)] * N
        case ReduceScatter():
            return np.split(FOLD[op.op_type](parts), N, op.scatter_dim)
        case Broadcast():
            return [parts[op.root]] * N
        case ZeROPartitionOptState():
            return [np.split(p, N, op.partition_dim)[i] for i, p in enumerate(parts)]
        case AllToAll():
            cut = [np.split(p, N, op.concat_dim) for p in parts]
            return [np.concatenate([c[i] for c in cut], op.split_dim) for i in range(N)]
    raise TypeError(op)


MOVES = (AllReduce, AllGather, ReduceScatter, Broadcast, ZeROPartitionOptState, AllToAll)


def simulated(
    ops: list[IROp], inputs: dict[str, str], whole: dict[str, Array]
) -> list[Array] | None:
    """The last value on every rank; None where shapes do not go together."""
    state: list[dict[str, Array]] = [{} for _ in range(N)]
    for name, word in inputs.items():
        cut = np.split(whole[name], N, int(word)) if word != "R" else [whole[name]] * N
        for rank in range(N):
            state[rank][name] = cut[rank]
    try:
        for op in ops:
            operands = [[s[n] for n in op.input_names] for s in state]
            if isinstance(op, MOVES):
                made = exchanged(op, [o[0] for o in operands])
            else:
                made = [computed(op, *o) for o in operands]
            for rank in range(N):
                state[rank][op.output_name] = made[rank]
    except ValueError:
        return None
    return [s[ops[-1].output_name] for s in state]


def close(a: Array, b: Array) -> bool:
    """Equal but for rounding; the epsilon of a norm is more than that."""
    return bool(np.all(np.abs(a - b) <= 1e-11 * max(1.0, float(np.abs(b).max()))))


def right(parts: list[Array], value: Array) -> set[str]:
    """The placements by which the pieces are those of the value."""
    same = [p.shape == value.shape and close(p, value) for p in parts]
    out = {"R"} if all(same) else set[str]()
    for dim in (0, 1):
        joined = np.concatenate(parts, dim)
        if joined.shape == value.shape and close(joined, value):
            out.add(f"S({dim})")
    return out


def drawn(rng: random.Random) -> tuple[list[IROp], dict[str, str]]:
    """A chain of ops in which every value is read by the next."""
    inputs = {name: rng.choice("R01") for name in "abc"}
    ops: list[IROp] = []
    last = rng.choice("abc")
    for index in range(rng.randint(1, 5)):
        new, other, dim = f"v{index}", rng.choice("abc"), rng.randint(0, 1)
        pair = (last, other) if rng.random() < 0.7 else (other, last)
        how = rng.choice(["sum", "sum", "sum", "mean", "max"])
        choices: list[IROp] = [
            MatMul(*pair, new),
            MatMul(*pair, new),
            Add(*pair, new),
            Multiply(*pair, new),
            ReLU(last, new),
            Transpose(last, new),
            LossScale(last, new, 0.5),
            Softmax(last, new, 1),
            LayerNorm(last, new, 1),
            AllReduce(last, new, how),
            AllReduce(last, new),
            AllGather(last, new, dim),
            AllGather(last, new, 1 - dim),
            ReduceScatter(last, new, dim, how),
            Broadcast(last, new),
            ZeROPartitionOptState(last, new, dim),
            AllToAll(last, new, dim, 1 - dim),
        ]
        ops.append(rng.choice(choices))
        last = new
    return ops, inputs


@pytest.mark.parametrize("seed", range(5))
def test_what_is_accepted_is_right_and_what_is_right_is_accepted(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    accepted_programs = 0
    for _ in range(EACH):
        ops, inputs = drawn(rng)
        whole = {n: numbers.standard_normal((SIZE, SIZE)) for n in inputs}
        values = dict(whole)
        for op in ops:
            operands = [values[n] for n in op.input_names]
            moved = isinstance(op, MOVES)
            values[op.output_name] = operands[0] if moved else computed(op, *operands)
        parts = simulated(ops, inputs, whole)
        truth = right(parts, values[ops[-1].output_name]) if parts is not None else set[str]()
        case = Case(ops, {n: ((SIZE, SIZE), word) for n, word in inputs.items()}, TP)
        accepted, why = case.accepted()
        shown = f"{inputs}\n{Program('drawn', ops)}\n{why}"
        assert accepted == bool(truth), shown
        accepted_programs += accepted
    assert accepted_programs > EACH // 10
