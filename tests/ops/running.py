"""One op as a program, its results on arrays, and verdicts whose proofs are replayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Attr, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.verdict import Proof, Verdict
from tests.asking import elementwise


def program(op: str, shapes: Mapping[str, tuple[int, ...]], **attrs: Attr) -> Program:
    """One op; operands named `n:i64` are integers."""
    b = Builder(op)
    names: list[str] = []
    for name, shape in shapes.items():
        letters, _, dtype = name.partition(":")
        role = "input" if dtype else "param"
        names.append(b.input(letters, TensorType(shape, dtype or "f64"), role))
    for k, out in enumerate(b.add_node(op, names, attrs)):
        b.output(out, path=str(k))
    return b.build()


def run(op: str, operands: Mapping[str, Any], **attrs: Attr) -> list[Array]:
    """The results of one op on arrays."""
    given = {k.partition(":")[0]: np.asarray(v) for k, v in operands.items()}
    made = program(op, {k: np.shape(v) for k, v in operands.items()}, **attrs)
    state = evaluate(made, given)
    return [state[o.value] for o in inline(made).outputs]


def judged(
    sequential: Program, distributed: Program, contract: Contract, elements: bool = True
) -> Verdict:
    """The verdict. Of a proof, the checker and the element-wise decider are asked as well.

    Without `elements`, the latter is not: it tells maxima of sums in another order apart.
    """
    verdict = verify(Problem(sequential, distributed, contract))
    if isinstance(verdict, Proof):
        replayed = check(verdict.certificate, Problem(sequential, distributed, contract))
        assert isinstance(replayed, Accepted), replayed
        if not elements:
            return verdict
        integers = [i for i in sequential.inputs if not i.type.is_float]
        given = {i.name: np.arange(i.type.size).reshape(i.type.shape) for i in integers}
        answers = elementwise(inline(sequential), inline(distributed), contract, given)
        assert all(isinstance(a, smt.Valid) for a in answers.values()), answers
    return verdict
