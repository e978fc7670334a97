"""Random class programs against a numpy run of every rank that knows nothing of the core."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from tests.compat.cases import TP, Case
from verifier import (
    Add,
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    DeviceMesh,
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
SIZE, EACH = 8, 100
GRID = DeviceMesh((2, 2), ("dp", "tp"))
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
    """What the ranks of one group hold afterwards."""
    n = len(parts)
    match op:
        case AllReduce():
            return [FOLD[op.op_type](parts)] * n
        case AllGather():
            return [np.concatenate(parts, op.gather_dim)] * n
        case ReduceScatter():
            return np.split(FOLD[op.op_type](parts), n, op.scatter_dim)
        case Broadcast():
            return [parts[op.root]] * n
        case ZeROPartitionOptState():
            return [np.split(p, n, op.partition_dim)[i] for i, p in enumerate(parts)]
        case AllToAll():
            cut = [np.split(p, n, op.concat_dim) for p in parts]
            return [np.concatenate([c[i] for c in cut], op.split_dim) for i in range(n)]
    raise TypeError(op)


MOVES = (AllReduce, AllGather, ReduceScatter, Broadcast, ZeROPartitionOptState, AllToAll)


def groups(mesh: DeviceMesh, name: str | None) -> list[list[int]]:
    if name is None:
        return [list(mesh.ids)]
    size, index = mesh.get_submesh(name)
    return [mesh.devices_in_group(index, g) for g in range(mesh.num_devices // size)]


def pieces(whole: Array, words: str, mesh: DeviceMesh, order: Sequence[int]) -> list[Array]:
    """The piece of every rank, mesh dims cutting in this order."""
    out: list[Array] = []
    for rank in mesh.ids:
        part = whole
        for index in order:
            if words.split()[index] != "R":
                cut = np.split(part, mesh.shape[index], int(words.split()[index]))
                part = cut[mesh.device_to_coord(rank)[index]]
        out.append(part)
    return out


def simulated(
    ops: list[IROp], inputs: dict[str, str], whole: dict[str, Array], mesh: DeviceMesh
) -> list[Array] | None:
    """The last value on every rank; None where shapes do not go together."""
    state: list[dict[str, Array]] = [{} for _ in mesh.ids]
    for name, words in inputs.items():
        for rank, part in enumerate(pieces(whole[name], words, mesh, range(mesh.ndim))):
            state[rank][name] = part
    try:
        for op in ops:
            operands = [[s[n] for n in op.input_names] for s in state]
            made: list[Array] = [np.zeros(0)] * len(state)
            if isinstance(op, MOVES):
                for group in groups(mesh, op.mesh_dim):
                    after = exchanged(op, [operands[r][0] for r in group])
                    for rank, part in zip(group, after, strict=True):
                        made[rank] = part
            else:
                made = [computed(op, *o) for o in operands]
            for rank in mesh.ids:
                state[rank][op.output_name] = made[rank]
    except ValueError:
        return None
    return [s[ops[-1].output_name] for s in state]


def close(a: Array, b: Array) -> bool:
    """Equal but for rounding; the epsilon of a norm is more than that."""
    return bool(np.all(np.abs(a - b) <= 1e-11 * max(1.0, float(np.abs(b).max()))))


def right(parts: list[Array], value: Array, mesh: DeviceMesh) -> bool:
    """Whether the pieces are those of the value, in blocks or strided.

    An index of 8 is three binary digits; a mesh dim of size 2 may own any digit of either dim.
    """
    digits = value.reshape((2,) * 6) if value.shape == (SIZE, SIZE) else None
    for owned in product((None, *range(6)), repeat=mesh.ndim):
        if digits is None or len({d for d in owned if d is not None} | {-1}) <= sum(
            d is not None for d in owned
        ):
            continue
        at = [mesh.device_to_coord(rank) for rank in mesh.ids]
        same = True
        for part, coords in zip(parts, at, strict=True):
            index: list[slice | int] = [slice(None)] * 6
            for coord, digit in zip(coords, owned, strict=True):
                if digit is not None:
                    index[digit] = coord
            rows = 2 ** sum(isinstance(k, slice) for k in index[:3])
            want = digits[tuple(index)].reshape(rows, -1)
            same = same and part.shape == want.shape and close(part, want)
        if same:
            return True
    return False


def drawn(rng: random.Random, mesh: DeviceMesh) -> tuple[list[IROp], dict[str, str]]:
    """A chain of ops in which every value is read by the next."""
    inputs = {name: " ".join(rng.choice("R01") for _ in mesh.shape) for name in "abc"}
    ops: list[IROp] = []
    last = rng.choice("abc")
    for index in range(rng.randint(1, 5)):
        new, other, dim = f"v{index}", rng.choice("abc"), rng.randint(0, 1)
        pair = (last, other) if rng.random() < 0.7 else (other, last)
        how = rng.choice(["sum", "sum", "sum", "mean", "max"])
        along = rng.choice([*mesh.dim_names, *mesh.dim_names, None])
        one = along or mesh.dim_names[-1]
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
            AllReduce(last, new, how, along),
            AllReduce(last, new, "sum", along),
            AllGather(last, new, dim, along),
            AllGather(last, new, 1 - dim, along),
            ReduceScatter(last, new, dim, how, along),
            Broadcast(last, new, 0, one),
            ZeROPartitionOptState(last, new, dim, 1, along),
            AllToAll(last, new, dim, 1 - dim, along),
        ]
        ops.append(rng.choice(choices))
        last = new
    return ops, inputs


@pytest.mark.parametrize("mesh", [TP, GRID], ids=["tp", "dp and tp"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_accepted_is_right_and_what_is_right_is_accepted(
    seed: int, mesh: DeviceMesh
) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    accepted_programs = 0
    for _ in range(EACH):
        ops, inputs = drawn(rng, mesh)
        whole = {n: numbers.standard_normal((SIZE, SIZE)) for n in inputs}
        values = dict(whole)
        for op in ops:
            operands = [values[n] for n in op.input_names]
            moved = isinstance(op, MOVES)
            values[op.output_name] = operands[0] if moved else computed(op, *operands)
        parts = simulated(ops, inputs, whole, mesh)
        truth = parts is not None and right(parts, values[ops[-1].output_name], mesh)
        case = Case(ops, {n: ((SIZE, SIZE), words) for n, words in inputs.items()}, mesh)
        accepted, why = case.accepted()
        assert accepted == truth, f"{inputs}\n{Program('drawn', ops)}\n{why}"
        accepted_programs += accepted
    assert accepted_programs > EACH // 20
