"""What proving a full-size step again costs after an edit of one op, in a fresh process.

The texts of a step and its proof are written to a directory, as `shardproof verify` keeps them. A
process that knows nothing else reads the edited text and what was kept, and proves it.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.steps.examples import preconditions
from synthesis.training.step import Step
from verifier.problem import Problem
from verifier.reuse import Base, proved_again
from verifier.reuse.reading import reread
from verifier.reuse.store import Kept, Store
from verifier.text.parser import Spans, parse_text, to_text
from verifier.verification import verify

PRODUCT = re.compile(r"^(\s*%\S+ = mul )(%[^\s,]+), (%[^\s,{]+)(.*)$", re.DOTALL)
REDUCED = re.compile(
    r"^(\s*)(%[^\s,]+) = all_reduce (%[^\s,]+) \{mesh_dim=(\w+), reduce=sum\}( on\(.*?\))? :"
    r" \w+\[(\d+)[^\n]*\n$"
)


def op_edited(text: str) -> str | None:
    """The text with the factors of one product of the innermost blocks swapped."""
    lines = text.splitlines(keepends=True)
    found = [(i, m) for i, line in enumerate(lines) if (m := PRODUCT.match(line))]
    found = [(i, m) for i, m in found if m[2] != m[3]]
    if not found:
        return None
    at, match = max(found, key=lambda item: len(item[1][1]) - len(item[1][1].lstrip()))
    lines[at] = f"{match[1]}{match[3]}, {match[2]}{match[4]}"
    return "".join(lines)


def collective_edited(text: str, sizes: dict[str, int]) -> str | None:
    """The text with one all_reduce written as reduce_scatter and all_gather."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        match = REDUCED.match(line)
        if match is None or int(match[6]) % sizes[match[4]] or sizes[match[4]] == 1:
            continue
        indent, value, operand, name, on = match[1], match[2], match[3], match[4], match[5] or ""
        lines[at] = (
            f"{indent}{value}.part = reduce_scatter {operand} "
            f"{{dim=0, mesh_dim={name}, reduce=sum}}{on}\n"
            f"{indent}{value} = all_gather {value}.part {{dim=0, mesh_dim={name}}}{on}\n"
        )
        return "".join(lines)
    return None


def warm_seconds(step: Step) -> dict[str, float]:
    """Seconds of the clock by kind of edit, from opening the files to the proof.

    Raises:
        ValueError: the step is not proved, or not an edit of it.
    """
    text, spans, found = to_text(step.distributed), Spans(), list[Base]()
    program = parse_text(text, "distributed", spans)
    verify(
        Problem(step.sequential, program, step.contract, consts=preconditions(step)),
        remember=found,
    )
    if not found:
        raise ValueError("the step is not proved by relations")
    edits = {
        "op": op_edited(text),
        "collective": collective_edited(text, dict(step.distributed.mesh.dims)),
    }
    one, asked = to_text(step.sequential).encode(), json.dumps(step.contract.to_json()).encode()
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        store = Store(Path(name) / "proofs")
        store.keep(Kept(found[0], one, asked, text, spans, 0))
        (Path(name) / "s.txt").write_bytes(one)
        (Path(name) / "c.json").write_bytes(asked)
        for kind, edited in edits.items():
            if edited is None:
                continue
            (Path(name) / "d.txt").write_text(edited, encoding="utf-8")
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                seconds[kind] = pool.submit(again, name).result()
    return seconds


def again(directory: str) -> float:
    """Prove the edited program in a directory; the seconds it took. Raises ValueError."""
    start = time.perf_counter()
    root = Path(directory)
    store = Store(root / "proofs")
    one, asked = (root / "s.txt").read_bytes(), (root / "c.json").read_bytes()
    found = store.kept(one, asked)
    if found is None:
        raise ValueError("nothing was kept")
    kept, _ = found
    text = (root / "d.txt").read_text(encoding="utf-8")
    program = reread(text, kept.text, kept.base.written, kept.spans)
    if program is None or proved_again(kept.base, program) is None:
        raise ValueError("the edited step is not proved by what changed")
    return time.perf_counter() - start
