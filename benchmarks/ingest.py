"""`python -m benchmarks.ingest`: seconds and memory to read and prove the programs of 8192 ranks.

A training step of Llama 3 405B on 16 pipeline stages, 64 replicas and 8 tensor ranks is written as
8192 programs, and read back as one: unaltered, which is then proved, and with one number of one
rank altered. Seconds are of the processor; reading runs in a process of its own, so that its memory
is its own.
Exits 1 where reading takes longer than a minute or more than 2 GB, where the unaltered programs are
not proved, or where the altered rank is not found.
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
from collections.abc import Iterator
from pathlib import Path

from synthesis.training.model import MODELS, Degrees
from synthesis.training.step import Step, training_step
from verifier.ingest import rank_texts, read_ranks
from verifier.ingest.form import header
from verifier.ir.program import Program
from verifier.verify import verify

LIMIT_S = 60.0
LIMIT_GB = 2.0
ALTERED = 4711
"""The rank that is altered in the second set; on small meshes, modulo their ranks."""


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


def _alter(text: bytes) -> bytes:
    """One number of one line: a scale in the middle of the text."""
    found = list(re.finditer(rb"mul_scalar %\S+ \{value=([^}]*)\}", text))
    chosen = found[len(found) // 2]
    return text[: chosen.start(1)] + b"3/7" + text[chosen.end(1) :]


def _written(program: Program, right: Path, wrong: Path) -> Iterator[float]:
    """Write both sets; gives the bytes of each rank."""
    with (
        gzip.open(right, "wb", compresslevel=1) as one,
        gzip.open(wrong, "wb", compresslevel=1) as other,
    ):
        for out in (one, other):
            out.write(f"{header(program.name, program.mesh)}\n".encode())
        for rank, text in rank_texts(program):
            one.write(text)
            other.write(_alter(text) if rank == ALTERED % program.mesh.size else text)
            yield len(text)


def _read(given: argparse.Namespace) -> None:
    """In a process of its own: read, print what was found, and prove where nothing was."""
    begin = time.process_time()
    read = read_ranks(given.read)
    spent = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    nodes = len(read.program.nodes) if read.program is not None else 0
    found = [[f.rank, f.kind, str(f)] for f in read.findings]
    shown = {"s": spent, "gb": peak, "nodes": nodes, "found": found, "stats": read.stats}
    if read.program is not None and not found:
        step = _step(given)
        begin = time.process_time()
        known = step.preconditions
        verdict = verify(step.sequential, read.program, step.contract, consts=known)
        shown |= {"verdict": type(verdict).__name__, "prove_s": time.process_time() - begin}
    print(json.dumps(shown))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dp", type=int, default=64)
    parser.add_argument("--tp", type=int, default=8)
    parser.add_argument("--pp", type=int, default=16)
    parser.add_argument("--model", choices=sorted(MODELS), default="llama3-405b")
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--write", type=Path, help="a folder to write both sets to and keep")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        _read(given)
        return 0
    failed = False
    program = _step(given).distributed
    with tempfile.TemporaryDirectory() as folder:
        kept = given.write or Path(folder)
        paths = [kept / "right.spz", kept / "wrong.spz"]
        begin = time.process_time()
        sizes = list(_written(program, *paths))
        spent = time.process_time() - begin
        print(f"ranks        {len(sizes)} of mesh {program.mesh}, {len(program.nodes)} nodes")
        print(
            f"text         {sum(sizes) / 1e6:.0f} MB, {sum(sizes) / len(sizes) / 1e3:.0f} kB a rank"
        )
        print(f"written in   {spent:.1f} s, both sets", flush=True)
        for path, altered in zip(paths, (False, True), strict=True):
            command = [sys.executable, "-m", "benchmarks.ingest", *sys.argv[1:]]
            command += ["--read", str(path)]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            got = json.loads(out)
            ranks = {rank for rank, kind, _ in got["found"] if kind == "deviates"}
            right = ranks == ({ALTERED % len(sizes)} if altered else set())
            failed |= not right or not (altered or got["nodes"])
            failed |= not altered and got.get("verdict") != "Proof"
            failed |= got["s"] > LIMIT_S or got["gb"] > LIMIT_GB
            name = "one altered" if altered else "unaltered"
            print(f"{name:<12} read in {got['s']:.1f} s, {got['gb']:.2f} GB, {got['nodes']} nodes")
            if not altered:
                print(f"             {got.get('verdict')} in {got.get('prove_s', 0):.1f} s")
            for _, _, text in got["found"]:
                print(f"             {text}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
