"""`python -m benchmarks.ingest`: seconds and memory to verify the programs of 8192 ranks.

A training step of Llama 3 405B on 16 pipeline stages, 64 replicas and 8 tensor ranks, with 16
micro-batches written out in the order of the schedule, is written as 8192 programs: unaltered, and
with one rank altered in several ways. Each set is then read and verified in a process of its own;
seconds are of the processor and of the clock. Exits 1 where an unaltered set is not proved, a set
that is altered in its meaning is not refuted, one that is not is not proved, the altered rank is
not named, or a set takes more than 120 seconds of the processor or 4 GB.

With `--write FOLDER` the sets stay, beside `one_device.txt` and `contract.json`, for
`shardproof verify-ranks`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.rank_texts import rank_texts
from benchmarks.steps.examples import preconditions
from benchmarks.steps.model import MODELS, Degrees
from benchmarks.steps.step import training_step
from shardproof.synthesis.frontends.rank_programs import judged, read_ranks
from shardproof.synthesis.frontends.rank_programs.form import header
from shardproof.synthesis.training.step import Step
from shardproof.verifier.text.parser import to_text
from shardproof.verifier.verdict import Proof

LIMIT_S = 120.0
LIMIT_GB = 4.0
ALTERED = 4711
"""The rank that is altered; on small meshes, modulo their ranks."""


def _edit(pattern: str, new: str) -> Callable[[str], str]:
    """Replaces what is between the first two groups, in the middle one of all matches."""

    def change(text: str) -> str:
        found = list(re.finditer(pattern, text, re.MULTILINE))
        if not found:
            raise SystemExit(f"nothing to alter: no {pattern}")
        chosen = found[len(found) // 2]
        return text[: chosen.start()] + chosen.expand(new) + text[chosen.end() :]

    return change


KINDS: dict[str, tuple[str, Callable[[str], str]]] = {
    "unaltered": ("Proof", lambda text: text),
    "factor": (
        "Counterexample",
        _edit(r"^( +%\S+ = mul_scalar %\S+ \{value=)[^}]*", r"\g<1>3/7"),
    ),
    "factor outside": (
        "Counterexample",
        _edit(r"^(%\S+ = mul_scalar %\S+ \{value=)[^}]*", r"\g<1>3/7"),
    ),
    "op": ("Counterexample", _edit(r"^( +%\S+ = )mul( %\S+, %\S+)", r"\1add\2")),
    "collective": ("Counterexample", _edit(r"^(%\S+ = )all_reduce (%\S+) \{[^}]*\}", r"\1only \2")),
    "slice": (
        "Counterexample",
        _edit(r"^( +%\S+ = slice %\S+ \{dim=3, start=)0(, stop=)64", r"\g<1>64\g<2>128"),
    ),
    "sent": (
        "Counterexample",
        _edit(r"^send (%\S+) (\{.*)$", r"%negated = neg \1\nsend %negated \2"),
    ),
    "group": (
        "Counterexample",
        _edit(r"^( +%\S+ = all_gather %\S+ \{ranks=\[)([0-9]+), ", r"\g<1>\2, 3, "),
    ),
    "operands": ("Proof", _edit(r"^( +%\S+ = add )(%\S+), (%\S+)", r"\1\3, \2")),
}
"""What is altered, and the verdict that is right: inside of a repeated block, but for `factor
outside`, `collective` and `sent`; `slice` takes the other half, `sent` negates what is sent to the
next stage, `operands` exchanges those of a sum."""


def _step(given: argparse.Namespace) -> Step:
    degrees = Degrees(
        dp=given.dp,
        tp=given.tp,
        pp=given.pp,
        micro_batches=given.micro_batches,
        sequence_parallel=given.tp > 1,
        scan_layers=True,
    )
    return training_step(MODELS[given.model], degrees)


def _write(step: Step, folder: Path, kinds: Sequence[str]) -> int:
    """Write all sets; gives the bytes of one."""
    program, size = step.distributed, 0
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "one_device.txt").write_text(to_text(step.sequential), encoding="utf-8")
    contract = json.dumps(step.contract.to_json())
    (folder / "contract.json").write_text(contract, encoding="utf-8")
    with ExitStack() as stack:
        out = {
            kind: stack.enter_context(gzip.open(_path(folder, kind), "wb", compresslevel=1))
            for kind in kinds
        }
        for file in out.values():
            file.write(f"{header(program.name, program.mesh)}\n".encode())
        for rank, text in rank_texts(program):
            size += len(text)
            for kind, file in out.items():
                change = KINDS[kind][1]
                altered = rank == ALTERED % program.mesh.size
                file.write(change(text.decode()).encode() if altered else text)
    return size


def _path(folder: Path, kind: str) -> Path:
    return folder / f"{kind.replace(' ', '-')}.spz"


def _verify(given: argparse.Namespace) -> None:
    """In a process of its own: read one set, verify it, print what was found."""
    step = _step(given)
    begin, clock = time.process_time(), time.perf_counter()
    read_s = [0.0]

    def tell(doing: str) -> None:
        if doing == "classes":
            read_s[0] = time.process_time() - begin

    known = preconditions(step)
    read = read_ranks(given.verify, tell)
    verdict = judged(step.sequential, read, step.contract, known, tell)
    place = None if isinstance(verdict, Proof) else verdict.location
    shown = {
        "read_s": read_s[0],
        "cpu_s": time.process_time() - begin,
        "clock_s": time.perf_counter() - clock,
        "gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "verdict": type(verdict).__name__,
        "ranks": sorted({f.rank for f in read.of_kind("deviates") if f.rank is not None}),
        "where": str(place.source) if place is not None else "",
    }
    print(json.dumps(shown))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dp", type=int, default=64)
    parser.add_argument("--tp", type=int, default=8)
    parser.add_argument("--pp", type=int, default=16)
    parser.add_argument("--model", choices=sorted(MODELS), default="llama3-405b")
    parser.add_argument("--micro-batches", type=int, default=16)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--write", type=Path, help="a folder to write the sets to and keep")
    parser.add_argument("--only-write", action="store_true", help="verify nothing")
    parser.add_argument("--verify", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.verify:
        _verify(given)
        return 0
    step, failed = _step(given), False
    size = step.distributed.mesh.size
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.write or Path(scratch)
        begin = time.process_time()
        written = _write(step, folder, given.kinds)
        spent = time.process_time() - begin
        print(f"{size} ranks of mesh {step.distributed.mesh}, {written / 1e6:.0f} MB each set")
        print(f"{len(given.kinds)} sets written in {spent:.1f} s", flush=True)
        for kind in () if given.only_write else given.kinds:
            command = [sys.executable, "-m", "benchmarks.ingest", *sys.argv[1:]]
            command += ["--verify", str(_path(folder, kind))]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            got = json.loads(out)
            named = [] if kind == "unaltered" else [ALTERED % size]
            good = got["verdict"] == KINDS[kind][0] and got["ranks"] in ([], named)
            good &= got["ranks"] == named or kind == "operands"
            failed |= not good or got["cpu_s"] > LIMIT_S or got["gb"] > LIMIT_GB
            print(
                f"{kind:<14} {got['verdict']:<14} read {got['read_s']:.1f} s, in all "
                f"{got['cpu_s']:.1f} s ({got['clock_s']:.1f} of the clock), {got['gb']:.2f} GB  "
                f"{got['where']}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
