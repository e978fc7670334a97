# pyright: basic
"""Runs wrong programs under each fault, and counts what is proved and what the checker accepts.

The refuter is muted while programs are proved, unless the fault is one of its own: else it would
save the day. The checker has the fault where it runs the same code.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.queues import SimpleQueue
from typing import Any
from unittest.mock import patch

from benchmarks.verifier_faults.believed import FAULTS, Fault
from benchmarks.verifier_faults.edits import made
from benchmarks.verifier_faults.programs import ENTROPIES, copied, corpus, problem
from shardproof.verifier import escalate, verification
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.cross_entropy import open_entropy
from shardproof.verifier.refute import search
from shardproof.verifier.refute.scale_down import refuting
from shardproof.verifier.smt.answers import Answers
from shardproof.verifier.verdict import Proof, Unknown, Verdict
from shardproof.verifier.verification import verify

SECONDS = 2.5
"""Of the processor, for the wrong programs of one fault."""
FEW = 3
"""Wrong programs that are let through before no further ones are tried."""
SOME, CORPUS, RIGHT = 4, 40, 20
"""How many programs of the corpus are tried, those with few numbers first."""


@dataclass
class Told:
    """What one fault did."""

    name: str
    room: str
    shared: bool
    tried: int = 0
    proved: list[str] = field(default_factory=list[str])
    """Wrong programs that the provers took for right."""
    replayed: int = 0
    """Of these, accepted by the checker without any solver or numbers."""
    shown: int = 0
    """Accepted with steps shown by Z3 and terms computed."""
    accepted: int = 0
    """Accepted with programs run on numbers too, as `shardproof verify` does."""
    changed: str = ""
    """A verdict or certificate that it changes."""
    large: int = 0
    """Wrong programs proved that are too large to be run, and their terms to be computed."""
    large_accepted: int = 0
    """Of these, accepted with steps shown by Z3 and single entries of terms computed."""


@contextmanager
def muted() -> Generator[None]:
    """No program is run on numbers."""

    def nothing(*given: object, **named: object) -> None:
        del given, named

    with patch.object(verification, "refute", nothing), patch.object(escalate, "refute", nothing):
        yield


def judged(given: Problem) -> Verdict | str:
    try:
        return verify(given)
    except Exception as error:  # noqa: BLE001  (a fault may break anything)
        return f"{type(error).__name__}: {error}"


def accepted(given: Problem, proof: Proof, answers: Answers | None) -> bool:
    try:
        return isinstance(check(proof.certificate, given, answers), Accepted)
    except Exception:  # noqa: BLE001
        return False


def programs(fault: Fault) -> Iterator[tuple[str, Callable[[], Problem]]]:
    """Wrong programs: those written for the fault, and some of the corpus or many."""
    for number, pair in enumerate(fault.pairs):
        yield f"written {number}", lambda p=pair: problem(p)
    if fault.opened:
        for name, one in ENTROPIES.items():
            yield name, lambda one=one: copied(one, open_entropy(inline(one), unmarked=True)[0])
    for name, given in about(fault, "wrong")[: SOME if fault.pairs or fault.opened else CORPUS]:
        yield name, lambda given=given: given


LARGE = {
    "f32 4": "f32 300000",
    "f32 8": "f32 300000",
    "f32 4 4": "f32 512 512",
    "f32 2 2 2": "f32 128 128 128",
    "i64 4": "i64 300000",
    "i64 4 4": "i64 512 512",
}
"""Inputs too large to be computed, by small ones."""


def enlarged(fault: Fault) -> Iterator[Problem]:
    """The programs written for a fault, on large inputs, where they do not say their extents."""
    for pair in fault.pairs:
        if all(text in LARGE for text in pair.inputs):
            with suppress(IRError, ContractError, TypeError):
                yield problem(replace(pair, inputs=tuple(LARGE[text] for text in pair.inputs)))


def about(fault: Fault, side: str) -> list[tuple[str, Problem]]:
    """Programs of the corpus that a fault may tell on."""
    every = corpus(side)
    if not fault.about:
        return list(every)
    return [p for p in every if any(n.op == fault.about for _, n in p[1].distributed.walk())]


def run(fault: Fault) -> Told:
    told = Told(fault.name, fault.room, fault.shared)
    end = time.process_time() + SECONDS
    refuter = fault.room == "refute"
    for name, given in programs(fault):
        if len(told.proved) >= FEW or time.process_time() > end:
            break
        told.tried += 1
        with made(fault.edit), nullcontext() if refuter else muted():
            wrong = given()
            verdict = judged(wrong)
        if isinstance(verdict, Unknown) and "checker rejects" in verdict.reason:
            told.proved.append(name)
        if isinstance(verdict, Proof):
            told.proved.append(name)
            with made(fault.edit) if fault.shared else nullcontext():
                _accepted(told, wrong, verdict)
    if not told.proved:
        told.changed = _changed(fault)
    for given in enlarged(fault) if fault.shared else ():
        with made(fault.edit), muted():
            verdict = judged(given)
            if isinstance(verdict, Proof):
                told.large += 1
                told.large_accepted += accepted(given, verdict, Answers())
    return told


def _accepted(told: Told, wrong: Problem, proof: Proof) -> None:
    told.replayed += accepted(wrong, proof, None)
    with patch.object(search, "SMALL", -1), patch.object(refuting, "FEW_OPS", -1):
        told.shown += accepted(wrong, proof, Answers())
    told.accepted += accepted(wrong, proof, Answers())


def _changed(fault: Fault) -> str:
    """The first program whose verdict or certificate is another under the fault."""
    mute = nullcontext() if fault.room == "refute" else muted()
    end = time.process_time() + SECONDS
    with mute:
        for side in ("right", "wrong"):
            for name, given in about(fault, side)[:RIGHT]:
                if time.process_time() > end:
                    return ""
                before = _seen(given)
                with made(fault.edit):
                    after = _seen(given)
                if before != after:
                    return f"{side} {name}"
    return ""


def _seen(given: Problem) -> str:
    verdict = judged(given)
    if isinstance(verdict, Proof):
        replayed = accepted(given, verdict, None)
        return f"{verdict.certificate['seal']} {replayed}"
    return verdict if isinstance(verdict, str) else type(verdict).__name__


def campaign(faults: Sequence[Fault] = FAULTS) -> Iterator[Told]:
    """Each fault in a process of its own."""
    for side in ("wrong", "right"):
        corpus(side)
    fork = multiprocessing.get_context("fork")
    for fault in faults:
        queue = fork.SimpleQueue()
        child = fork.Process(target=_answer, args=(fault, queue))
        child.start()
        yield Told(**queue.get())
        child.join()


def _answer(fault: Fault, queue: SimpleQueue[dict[str, Any]]) -> None:
    queue.put(asdict(run(fault)))
