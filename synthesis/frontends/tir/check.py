"""Compares a lifted program with the interpreter on random numbers."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from shardproof.synthesis.frontends.tir.errors import TirError, fail
from shardproof.synthesis.frontends.tir.expressions import Value
from shardproof.synthesis.frontends.tir.interpret import interpret
from shardproof.synthesis.frontends.tir.lift import LiftResult, lift_func
from shardproof.synthesis.frontends.tir.script import parse
from shardproof.synthesis.frontends.tir.tree import Place, Stmt, TIRBlock, TIRFunc, TIRGrid
from shardproof.verifier.refute.evaluate import evaluate

MAX_STEPS = 100_000
"""Stores that the interpreter is asked to run."""


def steps(func: TIRFunc) -> int:
    """How many times a store runs, at most."""

    def count(stmts: tuple[Stmt, ...]) -> int:
        total = 0
        for stmt in stmts:
            if isinstance(stmt, TIRGrid):
                total += math.prod(stmt.extents) * count(stmt.body)
            elif isinstance(stmt, TIRBlock):
                total += count(stmt.body) + count(stmt.init)
            else:
                total += 1
        return total

    return count(func.body)


def random_inputs(made: LiftResult, seed: int) -> dict[str, Any]:
    """Arrays for the inputs: positive and negative floats, indices in range."""
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for item in made.program.inputs:
        if item.type.is_float:
            out[item.name] = rng.uniform(-2, 2, item.type.shape)
        else:
            high = 2 if item.type.dtype == "bool" else made.limits.get(item.name, 5)
            array = rng.integers(high, size=item.type.shape)
            out[item.name] = array.astype(bool) if item.type.dtype == "bool" else array
    return out


def compare(made: LiftResult, seed: int = 0) -> None:
    """Raise TirError where the program and the interpreter differ on random inputs.

    Inputs on which a function of the script is not defined are passed over; were there no others,
    that is an error too.
    """
    compared = 0
    for offset in range(2):
        inputs = random_inputs(made, seed + offset)
        if offset:  # roots and logarithms need numbers above zero
            inputs = {k: np.abs(v) + 0.1 if v.dtype.kind == "f" else v for k, v in inputs.items()}
        try:
            want = interpret(made.func, inputs)
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            if isinstance(error, TirError):
                raise
            continue
        compared += 1
        got = evaluate(made.program, inputs)
        for out in made.program.outputs:
            a, b = want[out.path], np.asarray(got[out.value], dtype=np.float64)
            if a.shape != b.shape or not np.allclose(a, b, rtol=1e-7, atol=1e-9, equal_nan=True):
                fail(
                    Place(file=made.func.file),
                    f"the lifted program and the interpreter differ in {out.path}; this is a fault "
                    "of the lifter, please report it",
                )
    if not compared:
        what = "the script is defined on none of the random inputs: it was not compared"
        fail(Place(file=made.func.file), what)


def check_lift(
    text: str,
    made: LiftResult,
    func: str | None,
    extents: Mapping[str, Value],
    inout: Collection[str],
) -> str:
    """Compare at the extents at hand, or at the largest halvings of symbolic ones that can be run.

    Returns the extents used. Raises TirError where the two differ or none can be run.
    """
    now = dict(extents)
    current = made
    while steps(current.func) > MAX_STEPS:
        smaller = {
            k: v // 2
            if isinstance(v, int) and not isinstance(v, bool) and v % 2 == 0 and v > 2
            else v
            for k, v in now.items()
        }
        if smaller == now:
            fail(
                Place(file=made.func.file),
                f"the script is too large to run: {steps(current.func)} stores",
                expected=f"at most {MAX_STEPS}",
                hint="give smaller extents, or make them symbolic",
            )
        now = smaller
        current = lift_func(parse(text, made.func.file, func=func, extents=now), inout=inout)
    compare(current)
    shown = ", ".join(f"{k}={v}" for k, v in now.items())
    return shown or "the extents of the script"
