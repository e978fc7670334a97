"""A plan's program on all its ranks, with every exchange checked as it happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.fault_kinds import SUMS, Fault, FaultInjector
from benchmarks.fingerprint_runs.inference import Run, added, checked_faults, none_left
from benchmarks.fingerprint_runs.machine import Machine, Simulated, start
from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, integer
from shardproof.synthesis.guard.fingerprint.exact import one_nan
from shardproof.synthesis.guard.fingerprint.mix import MASK, key as make_key
from shardproof.synthesis.guard.fingerprint.movement import fingerprint
from shardproof.synthesis.guard.fingerprint.outcome import Verdict
from shardproof.synthesis.guard.fingerprint.partition import GAY_SEED
from shardproof.synthesis.guard.fingerprint.reductions import verify_allreduce, verify_replicated
from shardproof.synthesis.guard.fingerprint.region import Array, raw_words
from shardproof.synthesis.guard.fingerprint.sums import sample
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.text.parser import parse_text

ADDS = ("all_reduce", "reduce_scatter", "reduce_to")
STAYS = {n for n, op in REGISTRY.items() if op.traits.alias} | {"shard_slice", "on_coord", "recv"}
"""Ops of a group in which nothing is sent."""


def verify_plan(
    plan: Program | str,
    *,
    backend: str = "sim",
    seed: int = GAY_SEED,
    faults: Mapping[str, Fault] | None = None,
    inputs: Sequence[Mapping[str, Array]] | None = None,
) -> Run:
    """Runs the program of the ranks in float64; its exchanges go through the machine.

    | exchange | check |
    |---|---|
    | all_gather, all_to_all, send, broadcast, ring_shift and the like | H of what arrived |
    | all_reduce, reduce_scatter, reduce_to of floats | T2 on every rank; R where all hold the sum |
    | sums of integers, maxima and minima | H, since they are exact in any order |

    H compares what each rank holds with what the senders' pieces have at these places.

    Sees and misses what these checks do; a failed one names the senders, or for R the odd ranks.
    Does not see whether the plan is right: that is what `verify` proves.

    Raises:
        FingerprintError: no program, inputs that are not its, or a fault of no op.
    """
    program = _program(plan)
    machine = start(backend, program.mesh.size)
    try:
        run = _PlanRun(integer(seed, "seed"), machine, checked_faults(faults))
        given = _inputs(program, run.rng) if inputs is None else inputs
        try:
            simulate(program, given, exchange=run.exchange)
        except (IRError, KeyError, ValueError, IndexError) as error:
            if isinstance(error, FingerprintError):
                raise
            raise FingerprintError(f"{program.name} does not run: {error}") from None
    finally:
        machine.close()
    none_left(run.faults)
    if not run.verdicts:
        run.verdicts.append(
            Verdict("skipped", program.name, "H", probable_fault="the plan exchanges nothing")
        )
    return Run(tuple(run.verdicts))


def _program(plan: Program | str) -> Program:
    if isinstance(plan, str):
        try:
            return parse_text(plan)
        except IRError as error:
            raise FingerprintError(f"the plan: {error}") from None
    if not isinstance(plan, Program):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FingerprintError(
            f"the plan: expected the program of the ranks, or its text, got {type(plan).__name__}"
        )
    return plan


def _inputs(program: Program, rng: np.random.Generator) -> list[dict[str, Array]]:
    """Random values; integers are 0 or 1, which index anything of two elements."""
    ranks: list[dict[str, Array]] = []
    for _ in program.mesh.coords():
        drawn: dict[str, Array] = {}
        for item in program.inputs:
            if item.type.kind == "float":
                drawn[item.name] = rng.standard_normal(item.type.shape)
            else:
                bits = rng.integers(0, 2, item.type.shape)
                drawn[item.name] = bits.astype(bool) if item.type.kind == "bool" else bits
        ranks.append(drawn)
    return ranks


@dataclass
class _PlanRun:
    seed: int
    machine: Machine
    faults: dict[str, Fault]
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    calls: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed & MASK)
        self.injector = FaultInjector(self.seed)

    def exchange(
        self,
        node: Node,
        given: Sequence[Array | None],
        group: Sequence[int],
        attrs: Mapping[str, Any],
    ) -> list[Array | None]:
        """What the ranks of one group hold after a node, checked."""
        given = _arrays(given)
        if node.op in STAYS or len(group) == 1:
            return Simulated()(node.op, given, group, attrs)
        self.calls += 1
        salt = make_key(self.seed, node.op, self.calls)
        fault = self._fault(node.outputs[0], group)
        if node.op in ADDS:
            return self._add(node, given, group, attrs, salt, fault)
        spoiled = list(given)
        if fault is not None:
            held = [i for i, x in enumerate(given) if x is not None]
            pieces = [x for x in given if x is not None]
            at = held.index(fault.rank) if fault.rank in held else 0
            out = self.injector.inject(Fault(fault.kind, at, fault.draw), pieces)
            for i, x in zip(held, out, strict=True):
                spoiled[i] = x
        arrived = _arrays(self.machine(node.op, spoiled, group, attrs))
        wanted = _arrays(Simulated()(node.op, given, group, attrs))
        sources = _arrays(Simulated()(node.op, _senders(given), group, attrs))
        what = f"{node.op} %{node.outputs[0]}"
        for i, (x, want, who) in enumerate(zip(arrived, wanted, sources, strict=True)):
            if want is not None and who is not None:
                self.verdicts.append(_moved(what, x, want, who, salt, group, group[i]))
        return arrived

    def _fault(self, value: str, group: Sequence[int]) -> Fault | None:
        """The fault of this op, if it is on a rank of this group; its rank is that in the group."""
        fault = self.faults.get(value)
        if fault is None or fault.rank not in group:
            return None
        del self.faults[value]
        return Fault(fault.kind, list(group).index(fault.rank), fault.draw)

    def _add(
        self,
        node: Node,
        given: Sequence[Array | None],
        group: Sequence[int],
        attrs: Mapping[str, Any],
        salt: int,
        fault: Fault | None,
    ) -> list[Array | None]:
        inputs = [x for x in given if x is not None]
        out = _arrays(self.machine(node.op, given, group, attrs))
        holds = [i for i, y in enumerate(out) if y is not None]
        how, n, what = str(attrs.get("reduce", "sum")), len(group), f"{node.op} %{node.outputs[0]}"
        parts = [_shares(node.op, x, n, attrs) for x in inputs]
        if fault is not None:
            i = fault.rank if fault.rank in holds else holds[0]
            mine = [np.asarray(p[i], order="C") for p in parts]
            right = [y if y is not None else mine[0] for y in out]
            kind = Fault(fault.kind, i, fault.draw)
            spoil = mine if fault.kind in SUMS else right
            out[i] = added(self.injector, kind, spoil, right)[i]
        exact = how not in ("sum", "avg") or inputs[0].dtype.kind != "f"
        wanted = _arrays(Simulated()(node.op, given, group, attrs))
        for i in holds:
            y, want = out[i], wanted[i]
            assert y is not None
            assert want is not None
            if exact:
                who = np.full(want.shape, i)
                self.verdicts.append(_moved(what, y, want, who, salt, group, group[i]))
            else:
                samples = [sample(np.asarray(p[i], order="C"), salt) for p in parts]
                verdict = verify_allreduce(
                    y, n, salt, level="T2", samples=samples, average=how == "avg"
                )
                self.verdicts.append(_named(verdict, what, group[i]))
        if node.op == "all_reduce":
            copies = [fingerprint(np.asarray(out[i], order="C"), None, salt) for i in holds]
            verdict = verify_replicated(copies, what)
            self.verdicts.append(_of_ranks(verdict, group))
        return out


def _named(verdict: Verdict, op: str, rank: int) -> Verdict:
    return replace(verdict, op=op, rank=rank)


def _of_ranks(verdict: Verdict, group: Sequence[int]) -> Verdict:
    return replace(verdict, culprit_ranks=tuple(group[i] for i in verdict.culprit_ranks))


def _arrays(values: Sequence[Array | None]) -> list[Array | None]:
    """Values of shape [] as arrays, not as numpy's scalars."""
    return [None if x is None else np.asarray(x) for x in values]


def _senders(given: Sequence[Array | None]) -> list[Array | None]:
    return [None if x is None else np.full(x.shape, i) for i, x in enumerate(given)]


def _shares(op: str, x: Array, n: int, attrs: Mapping[str, Any]) -> list[Array]:
    """What of one rank's term goes into the result of each rank."""
    return np.split(x, n, axis=int(attrs["dim"])) if op == "reduce_scatter" else [x] * n


def _moved(
    what: str,
    arrived: Array | None,
    want: Array,
    who: Array,
    salt: int,
    group: Sequence[int],
    rank: int,
) -> Verdict:
    """H of what a rank holds. `who` is the sender of each element."""
    want = one_nan(np.asarray(want, order="C"))
    expected = fingerprint(want, None, salt)
    if arrived is None or (arrived.shape, arrived.dtype) != (want.shape, want.dtype):
        got = "nothing" if arrived is None else f"{arrived.dtype}{list(arrived.shape)}"
        return Verdict("failed", what, "H", str(expected), got, rank=rank)
    arrived = one_nan(np.asarray(arrived, order="C"))
    actual = fingerprint(arrived, None, salt)
    if expected == actual:
        return Verdict("passed", what, "H", str(expected), str(actual), rank=rank)
    bits = (raw_words(x, 1).reshape(want.size, want.itemsize) for x in (want, arrived))
    wrong = np.flatnonzero(np.any(np.not_equal(*bits), axis=1))
    culprits = sorted({group[int(i)] for i in who.reshape(-1)[wrong]})
    return Verdict(
        "failed",
        what,
        "H",
        str(expected),
        str(actual),
        tuple(culprits),
        (int(wrong[0]), int(wrong[-1]) + 1),
        f"{wrong.size} of {want.size} elements on rank {rank} are not what was sent",
        rank,
    )
