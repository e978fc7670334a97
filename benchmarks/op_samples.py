"""`python -m benchmarks.op_samples [OP ...]`: PyTorch's own samples of its ops, captured and run.

The samples are those that PyTorch tests its ops with (`op_db`). Each is a module whose float
tensors are parameters, captured as a user's module is, run on numbers in float64, and compared
with eager PyTorch: results and gradients. An op is refused or agrees; what differs is a fault of
capture. Entries where PyTorch gives infinity or NaN are not compared: proofs do not speak of them.
Ends in 1 where something differs.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.lower import Lowered, Lowering
from shardproof.synthesis.frontends.torch.materialize import fake_mode, take_buffers, to_fake
from shardproof.synthesis.frontends.torch.provenance import Provenance
from shardproof.synthesis.frontends.torch.prune import prune
from shardproof.synthesis.frontends.torch.results import named_outputs
from shardproof.synthesis.frontends.torch.torch_api import plain_kernels
from shardproof.synthesis.frontends.torch.trace import trace
from shardproof.synthesis.frontends.torch.uninitialized_reads import refuse_unwritten
from shardproof.verifier.refute.evaluate import evaluate

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path("benchmarks/results/op_samples.json")
SECONDS, ELEMENTS, LARGEST = 20, 400, 500
TOLERANCE, NARROW = 1e-7, 1e-4
"""Of floats, and of integers, of which PyTorch makes float32."""
DTYPES = (torch.float64, torch.int64, torch.bool, torch.complex128)
NO_SAMPLE = {
    **dict.fromkeys(("topk", "sort", "argsort"), "ties are given any order"),
    "linspace": "a rounded number is cut off to an integer",
}
"""Of integers."""
ROUND = ("bfloat16", "half", "chalf")
"""Casts, which are the identity over the reals."""


Known = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """What came of one sample."""

    op: str
    dtype: str
    sample: int
    end: str
    """agrees, differs, refused, fault, none (PyTorch does not run it)"""
    why: str = ""


class Call(nn.Module):
    """An op called on a sample: floats are parameters where it has gradients, others arguments."""

    def __init__(self, op: Any, sample: Any) -> None:
        super().__init__()
        self.op = op
        leaves, self.spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.leaves: list[Any] = []
        self.given: dict[str, torch.Tensor] = {}
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                value = leaf.detach().clone()
                if value.is_floating_point() and op.supports_autograd and leaf.requires_grad:
                    self.register_parameter(f"p{i}", nn.Parameter(value))
                else:
                    self.given[f"x{i}"] = value
                leaf = (f"p{i}", f"x{i}")
            self.leaves.append(leaf)

    def forward(self, **given: torch.Tensor) -> Any:
        leaves = [self.value(leaf, given) for leaf in self.leaves]
        first, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        made = self.op(first, *args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, reals, made)

    def value(self, leaf: Any, given: dict[str, torch.Tensor]) -> Any:
        """Of a parameter, a copy: a result may be a view of it, and an op may write on it."""
        if not isinstance(leaf, tuple):
            return leaf
        value = getattr(self, leaf[0], None)
        return given[leaf[1]].clone() if value is None else value * 1.0


def reals(value: torch.Tensor) -> torch.Tensor:
    """The parts of complex numbers."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def eager(call: Call) -> Known:
    """Results, gradients and cotangents, in float64."""
    named, loss = named_outputs(call(**call.given))
    params = dict(call.named_parameters())
    if loss is not None:
        total, cotangents = dict(named)[loss], {}
    else:
        held = {n: t for n, t in named if t.requires_grad}
        cotangents = {n: torch.randn(t.shape, dtype=t.dtype) for n, t in held.items()}
        total = sum(((t * cotangents[n]).sum() for n, t in held.items()), torch.zeros(()))
    grads: Any = [None] * len(params)
    if params and total.requires_grad:
        grads = torch.autograd.grad(total, list(params.values()), allow_unused=True)
    return dict(named), dict(zip(params, grads, strict=True)), cotangents


def lowered(call: Call) -> Lowered:
    """The captured program.

    Raises:
        CaptureError: it is refused.
    """
    buffers = take_buffers(call)
    with fake_mode():
        to_fake(call)
        given = {
            n: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
            for n, t in call.given.items()
        }
    traced = trace(call, given)
    places = Provenance("")
    refuse_unwritten(traced, places)
    found = Lowering(traced, buffers, places, {}, "Call").run()
    return Lowered(prune(found.program), found.consts)


def differs(call: Call, known: Known) -> str:
    """What the captured program computes otherwise than PyTorch; "" if nothing."""
    results, grads, cotangents = known
    params = {n: p.detach().numpy().copy() for n, p in call.named_parameters()}
    floats = any(t.is_floating_point() or t.is_complex() for t in call.given.values())
    near = TOLERANCE if floats or params else NARROW
    found = lowered(call)
    values: dict[str, Any] = {}
    for item in found.program.inputs:
        values[item.name] = {
            "param": lambda p: params[p],
            "const": lambda p: np.asarray(found.consts[p]),
            "cotangent": lambda p: cotangents[p].numpy(),
            "input": lambda p: reals(call.given[p]).numpy(),
        }[item.role](item.name if item.role == "const" else item.path)
    got = evaluate(found.program, values)
    for item in found.program.outputs:
        source = grads if item.role == "grad" else results
        want = source[item.path]
        if want is None:
            want = torch.zeros(got[item.value].shape)
        want = want.detach().to(torch.float64).numpy(force=True)
        mine = np.asarray(got[item.value], dtype=np.float64)
        if mine.shape != want.shape:
            return f"{item.role} {item.path}: {list(mine.shape)}, not {list(want.shape)}"
        finite = np.isfinite(want)
        off = np.abs(mine - want)[finite]
        if not (off <= near * np.maximum(1.0, np.abs(want[finite]))).all():
            return f"{item.role} {item.path}: by {np.nanmax(off, initial=0.0):.3g}"
    return ""


class TooLongError(Exception):
    """A sample took more than its seconds."""


def late(*_: Any) -> None:
    raise TooLongError


def ours(problem: Exception) -> bool:
    """Whether code of this project failed, not PyTorch in what it does with the user's."""
    *_, (frame, _) = traceback.walk_tb(problem.__traceback__)
    file = Path(frame.f_code.co_filename)
    own = file.is_relative_to(ROOT) and "site-packages" not in file.parts
    return own and not isinstance(problem, CaptureError)


def largest(value: torch.Tensor) -> float:
    """The magnitude of the largest entry; of none, 0."""
    return float(value.detach().to(torch.complex128).abs().max()) if value.numel() else 0.0


def judged(op: Any, dtype: torch.dtype, index: int, sample: Any) -> Row:
    """A sample, captured and compared."""
    row = Row(op.full_name, str(dtype).removeprefix("torch."), index, "none")
    try:
        call = Call(op, sample)
        if any(
            (t.resolve_neg().to(torch.complex128).abs() > LARGEST).any()
            for t in (*call.parameters(), *call.given.values())
        ):
            return replace(row, why="an operand whose exponential is no float")
        torch.manual_seed(index)
        known = eager(call)
        if dtype in (torch.int64, torch.bool) and op.name in NO_SAMPLE:
            return replace(row, why=NO_SAMPLE[op.name])
    except Exception as problem:  # noqa: BLE001 - whatever PyTorch raises of its own samples
        return replace(row, why=type(problem).__name__)
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        why = differs(call, known)
        return replace(row, end="differs" if why else "agrees", why=why)
    except Exception as problem:  # noqa: BLE001 - every kind is a row
        end = "fault" if ours(problem) else "refused"
        text = " ".join(getattr(problem, "message", str(problem)).split())[:160]
        return replace(row, end=end, why=f"{type(problem).__name__}: {text}")
    finally:
        signal.alarm(0)


def samples(op: Any, dtype: torch.dtype, count: int) -> Iterator[tuple[int, Any]]:
    """Small ones, `count` of them, from all over the list."""
    gradients = op.supports_autograd and dtype == torch.float64
    made = op.sample_inputs("cpu", dtype, requires_grad=gradients)
    small: list[tuple[int, Any]] = []
    for index, sample in enumerate(itertools.islice(made, 400)):
        leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        if sum(t.numel() for t in leaves if isinstance(t, torch.Tensor)) <= ELEMENTS:
            small.append((index, sample))
    yield from small[:: max(1, -(-len(small) // count))]


def rows_of(op: Any, count: int) -> Iterator[Row]:
    """Of every dtype that the op takes."""
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        try:
            yield from (judged(op, dtype, *pair) for pair in samples(op, dtype, count))
        except (RuntimeError, TypeError, ValueError) as problem:
            print(f"{op.full_name}: no samples: {problem}", file=sys.stderr)


def by_op(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Of each op, how many samples came to which end, and the first cause of a refusal."""
    for name in dict.fromkeys(r.op for r in rows):
        mine = [r for r in rows if r.op == name]
        why = next((r.why for r in mine if r.end == "refused"), "")
        yield {"op": name, **Counter(r.end for r in mine), "why": why}


def main() -> int:
    """1 if a sample differs."""
    plain_kernels()
    from torch.testing._internal.common_methods_invocations import op_db

    parser = argparse.ArgumentParser(prog="benchmarks.op_samples")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, default=8, help="of samples, for each op and dtype")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--part", default="1/1", help="this part of the ops")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    rows: list[Row] = []
    for op in sorted(cast(list[Any], op_db), key=lambda o: o.full_name)[part - 1 :: parts]:
        if op.name in ROUND or (given.names and not {op.name, op.full_name} & {*given.names}):
            continue
        made = list(rows_of(op, given.count))
        rows += made
        print(op.full_name, dict(Counter(r.end for r in made)), file=sys.stderr, flush=True)
        for row in made:
            if row.end in ("differs", "fault"):
                print("   ", row.dtype, row.sample, row.end, row.why, file=sys.stderr, flush=True)
    given.results.write_text("[\n" + ",\n".join(map(json.dumps, by_op(rows))) + "\n]\n")
    print(dict(Counter(r.end for r in rows)))
    return int(any(r.end in ("differs", "fault") for r in rows))


if __name__ == "__main__":
    sys.exit(main())
