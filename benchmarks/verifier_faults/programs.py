# pyright: basic
"""Wrong programs: written for one fault, or those of the corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from benchmarks.mutation_testing.corpus import cases
from shardproof.verifier.kernel.contract import Contract, ContractError, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.search import elements_of

Op = Callable[..., str]
Write = Callable[..., str]


@dataclass(frozen=True)
class Pair:
    """What one device computes of inputs, and another value that ranks compute of copies."""

    one: Write
    ranks: Write
    inputs: tuple[str, ...]
    """For example `f32 4 4`."""


def pair(one: Write, ranks: Write, *inputs: str) -> Pair:
    return Pair(one, ranks, inputs)


def problem(given: Pair) -> Problem:
    one, many = (_program(w, given, mesh) for w, mesh in ((given.one, Mesh()), (given.ranks, TP)))
    return copied(one, many)


TP = Mesh.of(tp=2)


def copied(one: Program, many: Program) -> Problem:
    """Both programs, all ranks with copies of everything."""
    inputs = {i.name: Layout.replicate(i.type.shape) for i in one.inputs}
    outputs = {output_key(o): Layout.replicate(one.types[o.value].shape) for o in one.outputs}
    return Problem(one, many, Contract(inputs, outputs))


def _program(write: Write, given: Pair, mesh: Mesh) -> Program:
    b = Builder("wrong", mesh)
    names: list[str] = []
    for name, text in zip("abcdefg", given.inputs, strict=False):
        dtype, *shape = text.split()
        names.append(b.input(name, TensorType(tuple(map(int, shape)), dtype)))

    def op(kind: str, *args: str, **attrs: Any) -> str:
        return b.add(kind, *args, **attrs)

    b.output(write(op, *names), "output", "y")
    return b.build()


@cache
def corpus(side: str) -> tuple[tuple[str, Problem], ...]:
    """Problems of the corpus, those that hold few numbers first."""
    return tuple(sorted(_corpus(side), key=lambda item: elements_of(*_programs(item[1]))))


def _programs(given: Problem) -> tuple[Program, Program]:
    return given.sequential, given.distributed


def _corpus(side: str) -> Iterator[tuple[str, Problem]]:
    for case in cases():
        if case.kind == "program" and side in case.sides:
            try:
                yield f"{case.path.parent.name}/{case.path.stem}", Problem(*case.programs(side))
            except (IRError, ContractError):
                continue


def entropy(ignored: bool) -> Program:
    """A cross entropy of three rows and four classes, and its gradient."""
    rows, classes = 3, 4
    b = Builder("loss")
    x = b.input("x", TensorType((rows, classes), "f32"))
    labels = b.input("labels", TensorType((rows,), "i64"))
    each = b.add("reshape", labels, shape=(rows, 1))
    y = b.add("log_softmax", x)
    count = b.add("full", shape=(), value=Fraction(rows), dtype="f32")
    if ignored:
        mark = b.add("full", shape=(), value=Fraction(-100), dtype="i64")
        valid = b.add("cast", b.add("ne", labels, mark), dtype="f32")
        count = b.add("sum", valid, dims=(0,), keepdim=False)
    total = b.add("sum", b.add("take_along", y, each, dim=1), dims=(0, 1), keepdim=False)
    b.output(b.add("neg", b.add("div", total, count)), "loss", "loss")
    one = b.add("full", shape=(), value=Fraction(1), dtype="f32")
    g = b.add("reshape", b.add("neg", b.add("div", one, count)), shape=(1, 1))
    put = b.add("put_along", b.add("expand", g, shape=(rows, 1)), each, dim=1, size=classes)
    b.output(b.add("log_softmax_backward", put, y), "grad", "x")
    return b.build()


ENTROPIES = {"loss": entropy(ignored=False), "loss with ignored labels": entropy(ignored=True)}
