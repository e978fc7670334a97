"""`python -m benchmarks.steps`: write a training step, and prove it."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from dataclasses import fields
from pathlib import Path

from benchmarks.steps.examples import preconditions
from benchmarks.steps.model import MODELS, Degrees
from benchmarks.steps.step import training_step
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.training.step import Step, TrainingError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.printing import to_text
from shardproof.verifier.verdict import Proof, Trace, Unknown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="tiny")
    for item in fields(Degrees):
        flag = "--" + item.name.replace("_", "-")
        default: object = item.default
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            kind = int if isinstance(default, int) else str
            parser.add_argument(flag, type=kind, default=default)
    parser.add_argument("--write", type=Path, help="a folder for both programs as text")
    return parser


def _size(program: Program) -> str:
    nodes = sum(1 for _ in program.walk())
    return f"{len(program.inputs)} inputs, {nodes} nodes, {len(program.outputs)} outputs"


def _verdict(step: Step) -> tuple[int, list[str]]:
    verdict = verify(
        Problem(step.sequential, step.distributed, step.contract, consts=preconditions(step))
    )
    if isinstance(verdict, Proof):
        return 0, [f"proved  {len(step.contract.outputs)} outputs"]
    if isinstance(verdict, Unknown):
        lines = [f"unknown  {verdict.reason}"]
    elif isinstance(verdict.witness, Trace):
        lines = [f"refuted  {verdict.witness.check}: {verdict.witness.message}"]
        lines += verdict.witness.steps
    else:
        w = verdict.witness
        lines = [f"refuted  {w.output} on {w.rank}: {w.expected:.6g} expected, {w.got:.6g} got"]
    if (place := verdict.location) is not None:
        lines += [f"  {place.text}", f"  {place.reason}", *(f"    {o}" for o in place.operands)]
    return 1, lines


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 where the step is proved, 1 where it is not, 2 for degrees that do not fit."""
    given = _parser().parse_args(arguments)
    degrees = Degrees(**{item.name: getattr(given, item.name) for item in fields(Degrees)})
    begin = time.perf_counter()
    try:
        step = training_step(MODELS[given.model], degrees)
    except TrainingError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    built = time.perf_counter()
    sys.stdout.write(f"model        {given.model}, {MODELS[given.model].parameters:,} parameters\n")
    sys.stdout.write(f"mesh         {degrees.mesh or 'one device'}\n")
    sys.stdout.write(f"one device   {_size(step.sequential)}\n")
    sys.stdout.write(f"every rank   {_size(step.distributed)}\n")
    if given.write is not None:
        given.write.mkdir(parents=True, exist_ok=True)
        for name in ("sequential", "distributed"):
            text = to_text(getattr(step, name))
            (given.write / f"{name}.txt").write_text(text, encoding="utf-8")
    status, lines = _verdict(step)
    done = time.perf_counter()
    sys.stdout.write("\n".join(lines) + "\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    seconds = f"written in {built - begin:.2f} s, judged in {done - built:.2f} s"
    sys.stdout.write(f"{seconds}, {peak:.2f} GB at most\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
