"""Tensor parallelism in numpy: column- and row-parallel layers, and an MLP with one all-reduce.

Every function here is computed by simulated ranks, is stated as a program and proved equal to the
layer of one device, and has each of its collectives fingerprinted while it runs. The wrong variants
that people write are refuted.

| here | in vLLM |
|---|---|
| `column_parallel` | `ColumnParallelLinear`; its gather_output is the concatenation here |
| its shards as they are | `MergedColumnParallelLinear`, `QKVParallelLinear` |
| `row_parallel` | `RowParallelLinear`; bias on rank 0 only, which adds it once as we do |
| the sum in it | `tensor_model_parallel_all_reduce`, unless reduce_results is off |
| `mlp_tp` | gate_up (column) -> activation -> down (row), as in attention qkv -> o_proj |
| `num_ranks`, the slices | the world size and rank of `parallel_state` |
| running it | `MultiprocExecutor` and its workers |

Mind the layouts: a linear layer is y = x @ W.T with W of shape (out, in), so column parallelism
splits W along dim 0 and row parallelism along dim 1. The MLP is relu(x @ W1) @ W2, no transpose,
W1 (in, hidden), W2 (hidden, out): the same two splits are along dim 1 of W1 and dim 0 of W2.
"""

from collections import Counter
from operator import index

import numpy as np

from shardproof.synthesis.guard.fingerprint import (
    GAY_SEED,
    TensorPartition,
    fingerprint,
    key,
    ordered_sum,
    sample,
    verify_allgather,
    verify_allreduce,
)
from shardproof.verifier.text.contract import read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof
from verifier import Problem, verify


class Communicator:
    """Exchanges the pieces of simulated ranks; counts calls and checks each by fingerprints.

    `tamper(op, pieces)`, where it is given, is what goes wrong on the way. With `raises`, a check
    that fails is an error; else it is one of the `verdicts`.
    """

    def __init__(self, seed=GAY_SEED, tamper=lambda op, pieces: pieces, raises=False):
        self.seed, self.tamper, self.raises = seed, tamper, raises
        self.calls, self.verdicts = Counter(), []

    def _found(self, verdict):
        self.verdicts.append(verdict)
        if self.raises and verdict.alarm:
            raise RuntimeError(str(verdict))

    def _key(self, op):
        self.calls[op] += 1
        return key(self.seed, op, self.calls[op])

    def all_gather(self, shards, dim):
        """Concatenates the shards of all ranks along `dim`."""
        salt, n = self._key("all_gather"), len(shards)
        parts = TensorPartition(dim, n, 0, global_size=n * shards[0].shape[dim]).siblings()
        sent = [fingerprint(s, p, salt) for s, p in zip(shards, parts, strict=True)]
        whole = np.concatenate(self.tamper("all_gather", shards), axis=dim)
        self._found(verify_allgather(whole, parts, shard_fps=sent, key=salt))
        return whole

    def all_reduce(self, partials):
        """Adds the partial results of all ranks, in their order."""
        salt, n = self._key("all_reduce"), len(partials)
        samples = [sample(p, salt) for p in partials] if partials[0].dtype.kind == "f" else None
        total = ordered_sum(self.tamper("all_reduce", partials))
        for level in ("T3", "T2") if samples else ("T3",):
            self._found(
                verify_allreduce(total, n, seed=salt, level=level, inputs=partials, samples=samples)
            )
        return total


def _split(what, size, num_ranks):
    try:
        num_ranks = index(num_ranks)
    except TypeError:
        raise ValueError(f"num_ranks: expected an integer, got {num_ranks!r}") from None
    if num_ranks < 1 or size % num_ranks or size < num_ranks > 1:
        raise ValueError(f"{what} is {size}, which {num_ranks} ranks cannot share equally")
    return [slice(r * size // num_ranks, (r + 1) * size // num_ranks) for r in range(num_ranks)]


def _numbers(**arrays):
    for name, array in arrays.items():
        rows = isinstance(array, np.ndarray) and (array.ndim == 2 or (name == "x" and array.ndim))
        if not rows or array.dtype.kind not in "iuf":
            got = getattr(array, "dtype", type(array).__name__), getattr(array, "shape", ())
            what = "rows of numbers" if name == "x" else "a matrix of numbers"
            raise ValueError(f"{name}: expected {what}, got {got[0]} {got[1]}")


def _bias(bias, out):
    if bias is not None and np.shape(bias) != (out,):
        raise ValueError(f"bias: expected shape ({out},), got {np.shape(bias)}")
    return bias if bias is None else np.asarray(bias)


def _fit(what, a, b):
    if a != b:
        raise ValueError(f"{what}: {a} and {b} differ")


def column_parallel(x, W, num_ranks, bias=None, comm=None):
    """x @ W.T + bias with the rows of W (out, in) split over ranks. One all-gather, none for one.

    x is (..., in): any number of rows.

    Raises:
        ValueError: no matrices, shapes that do not fit, or ranks that do not divide `out`.
    """
    _numbers(x=x, W=W)
    _fit("columns of x and of W", x.shape[-1], W.shape[1])
    rows, bias = _split("W's output dim", W.shape[0], num_ranks), _bias(bias, W.shape[0])
    shards = [x @ W[r].T if bias is None else x @ W[r].T + bias[r] for r in rows]
    if num_ranks == 1:
        return shards[0]
    return (comm or Communicator(raises=True)).all_gather(shards, x.ndim - 1)


def row_parallel(x, W, num_ranks, bias=None, comm=None):
    """x @ W.T + bias with the columns of W (out, in) and of x split over ranks. One all-reduce.

    The bias is added once, after the sum.

    Raises:
        ValueError: no matrices, shapes that do not fit, or ranks that do not divide `in`.
    """
    _numbers(x=x, W=W)
    _fit("columns of x and of W", x.shape[-1], W.shape[1])
    columns, bias = _split("W's input dim", W.shape[1], num_ranks), _bias(bias, W.shape[0])
    y = _added([x[..., c] @ W[:, c].T for c in columns], comm)
    return y if bias is None else y + bias


def mlp_tp(x, W1, W2, num_ranks, comm=None):
    """relu(x @ W1) @ W2 with the hidden dim split over ranks: exactly one all-reduce.

    relu acts on each column alone, so it may act on shards of columns. W1 is (in, hidden), W2 is
    (hidden, out).

    Raises:
        ValueError: no matrices, shapes that do not fit, or ranks that do not divide `hidden`.
    """
    _numbers(x=x, W1=W1, W2=W2)
    _fit("columns of x and rows of W1", x.shape[-1], W1.shape[0])
    _fit("columns of W1 and rows of W2", W1.shape[1], W2.shape[0])
    hidden = _split("the hidden dim", W1.shape[1], num_ranks)
    return _added([np.maximum(x @ W1[:, h], 0) @ W2[h] for h in hidden], comm)


def _added(partials, comm):
    if len(partials) == 1:
        return partials[0]
    return (comm or Communicator(raises=True)).all_reduce(partials)


LINEAR = """program one
  input %x: f64[3, 8]
  param %w: f64[24, 8]
  param %b: f64[24]
  %t = permute %w {dims=[1, 0]}
  %h = mm %x, %t
  %y = add %h, %b
  return %y
"""
MLP = """program one
  input %x: f64[3, 16]
  param %w1: f64[16, 16]
  param %w2: f64[16, 24]
  %h = mm %x, %w1
  %a = relu %h
  %y = mm %a, %w2
  return %y
"""
LINEAR_RELU = """program one
  input %x: f64[3, 8]
  param %w: f64[24, 8]
  %t = permute %w {dims=[1, 0]}
  %h = mm %x, %t
  %y = relu %h
  return %y
"""
COLUMN = """program many mesh(tp={n})
  input %x: f64[3, 8]
  param %w: f64[{out}, 8]
  param %b: f64[{out}]
  %t = permute %w {{dims=[1, 0]}}
  %h = mm %x, %t
  %s = add %h, %b
  %y = all_gather %s {{mesh_dim=tp, dim=1}}
  return %y
"""
ROW = """program many mesh(tp={n})
  input %x: f64[3, {inner}]
  param %w: f64[24, {inner}]
  {bias}
  %t = permute %w {{dims=[1, 0]}}
  %p = mm %x, %t
  {end}
  return %y
"""
ROW_END = "%h = all_reduce %p {mesh_dim=tp}\n  %y = add %h, %b"
MLP_RANKS = """program many mesh(tp={n})
  input %x: f64[3, 16]
  param %w1: f64[{w1}]
  param %w2: f64[{hidden}, 24]
  {first}
  %a = relu %h
  %p = mm %a, %w2
  %y = all_reduce %p {{mesh_dim=tp}}
  return %y
"""
COLUMN_CONTRACT = "input w tp=S(0)\ninput b tp=S(0)"
ROW_CONTRACT = "input x tp=S(1)\ninput w tp=S(1)"
MLP_CONTRACT = "input w1 tp=S(1)\ninput w2 tp=S(0)"


def row_ranks(n, end, bias="param %b: f64[24]"):
    """The row-parallel layer of `n` ranks, from its partial sums %p on as `end` says."""
    return ROW.format(n=n, inner=8 // n, end=end, bias=bias)


def right_programs(n):
    """Name, program of one device, program of the ranks, contract."""
    hidden = 16 // n
    mlp = MLP_RANKS.format(n=n, w1=f"16, {hidden}", hidden=hidden, first="%h = mm %x, %w1")
    return [
        ("column_parallel", LINEAR, COLUMN.format(n=n, out=24 // n), COLUMN_CONTRACT),
        ("row_parallel", LINEAR, row_ranks(n, ROW_END), ROW_CONTRACT),
        ("mlp_tp", MLP, mlp, MLP_CONTRACT),
    ]


def wrong_programs(n):
    """The same of what people get wrong."""
    hidden = 16 // n
    rows_for_columns = "%t = permute %w1 {dims=[1, 0]}\n  %h = mm %x, %t"
    return [
        (
            "relu before the reduce",
            LINEAR_RELU,
            row_ranks(n, "%r = relu %p\n  %y = all_reduce %r {mesh_dim=tp}", bias=""),
            ROW_CONTRACT,
        ),
        (
            "concatenation for the sum",
            LINEAR,
            row_ranks(
                n,
                "%s = shard_slice %p {mesh_dim=tp, dim=1}\n"
                "  %h = all_gather %s {mesh_dim=tp, dim=1}\n  %y = add %h, %b",
            ),
            ROW_CONTRACT,
        ),
        (
            "W1 split along the wrong dim",
            MLP,
            MLP_RANKS.format(n=n, w1=f"{hidden}, 16", hidden=hidden, first=rows_for_columns),
            "input w1 tp=S(0)\ninput w2 tp=S(0)",
        ),
        (
            "bias on every rank before the sum",
            LINEAR,
            row_ranks(n, "%h = add %p, %b\n  %y = all_reduce %h {mesh_dim=tp}"),
            ROW_CONTRACT,
        ),
    ]


def judge(one, many, contract):
    """The verdict on a program of the ranks."""
    sequential, distributed = parse_text(one), parse_text(many)
    return verify(
        Problem(sequential, distributed, read_contract(contract, sequential, distributed).contract)
    )


def swapped(op, pieces):
    """What arrives where the first two ranks are taken for each other."""
    return [pieces[1], pieces[0], *pieces[2:]]


def main():
    rng = np.random.default_rng(0)
    x, W, b = rng.standard_normal((3, 8)), rng.standard_normal((24, 8)), rng.standard_normal(24)
    W1, W2 = rng.standard_normal((8, 16)), rng.standard_normal((16, 24))
    dense = {
        "column_parallel": (x @ W.T + b, lambda n, c: column_parallel(x, W, n, b, c)),
        "row_parallel": (x @ W.T + b, lambda n, c: row_parallel(x, W, n, b, c)),
        "mlp_tp": (np.maximum(x @ W1, 0) @ W2, lambda n, c: mlp_tp(x, W1, W2, n, c)),
    }
    print("in numpy, float64, against one device")
    for name, (want, run) in dense.items():
        for n in (1, 2, 4, 8):
            comm = Communicator()
            got = run(n, comm)
            assert np.allclose(got, want, rtol=1e-12, atol=1e-13)
            assert all(comm.verdicts)
            calls = ", ".join(f"{k} {op}" for op, k in comm.calls.items()) or "no collective"
            checks = ", ".join(f"{v.check} {v.status}" for v in comm.verdicts) or "none"
            print(f"  {name:16} {n} ranks: {calls:13} largest difference ", end="")
            print(f"{np.max(np.abs(got - want)):.1e}  checks: {checks}")
    print("as programs, for all inputs")
    for n in (2, 4, 8):
        for name, *case in right_programs(n):
            verdict = judge(*case)
            assert isinstance(verdict, Proof), verdict
            print(f"  {name:16} {n} ranks: proved")
    print("and not")
    for name, *case in wrong_programs(2):
        verdict = judge(*case)
        assert isinstance(verdict, Counterexample), verdict
        w = verdict.witness
        print(f"  {name}: refuted, {w.output}{list(w.index)} on rank {w.rank['tp']}: ", end="")
        print(f"expected {w.expected:.6g}, got {w.got:.6g}")
    comm = Communicator(tamper=swapped)
    assert not np.allclose(column_parallel(x, W, 4, comm=comm), x @ W.T)
    assert comm.verdicts[0].alarm
    print("a right program on a machine that swaps two ranks")
    print(f"  {comm.verdicts[0]}")


if __name__ == "__main__":
    main()
