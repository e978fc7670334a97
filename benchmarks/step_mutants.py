"""`python -m benchmarks.step_mutants`: faults in the source of training steps.

One place of `examples/steps/ranks.py` is changed: a statement is left out, two change places, a
number or a condition is another. Each mutant is judged as `shardproof check --step --no-run` does.
Whether it is wrong is found by running it: two steps of three seeds on gloo in float64, against one
process. Rows are kept as they come; a run that was stopped goes on. A table of them goes to
docs/training-step.md. The command ends with 1 where a wrong one is proved.
"""

# pyright: basic

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import shardproof
from benchmarks.blocks import DOCS, write
from benchmarks.parallelize import ROOT
from shardproof.agent.check.contract import Statements
from shardproof.agent.check.pieces import Pieces
from shardproof.synthesis.execute.run.launcher import LaunchError
from shardproof.synthesis.execute.run.running import Order, of_file, run
from shardproof.synthesis.frontends.torch.ranks.stated import read_lines
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.proof import Proof
from shardproof.verifier.verdict import Counterexample, Unknown

FOLDER = ROOT / "examples" / "steps"
RESULTS = ROOT / "benchmarks" / "results" / "step_mutants.jsonl"
ROWS = ("x=S(0)@dp", "y=S(0)@dp")
SEED = 0
WORDS = {Proof: "proved", Counterexample: "refuted", Unknown: "unknown"}


@dataclass(frozen=True)
class Base:
    """A right step: what builds it on ranks and on one device, and which functions are mutated."""

    many: str
    one: str
    step: str
    mesh: Mesh
    rows: tuple[str, ...]


BASES = (
    Base("sharded", "adamw", "train_step", Mesh.of(dp=2), ROWS),
    Base("replicated", "adamw", "train_step", Mesh.of(dp=2), ROWS),
    Base("by_hand", "adamw", "train_step", Mesh.of(dp=2), ROWS),
    Base("both", "adamw", "train_step", Mesh.of(dp=2, tp=2), ROWS),
)


@dataclass(frozen=True)
class Row:
    key: str
    base: str
    kind: str
    place: str
    now: str
    truth: str
    """`right`, `wrong` or `broken`: it does not run."""
    verdict: str
    said: str
    seconds: float
    fault: int = 0
    """The first line of the mutant that is not as it was."""
    blamed: str = ""
    """The file and line of a refutation."""

    @property
    def near(self) -> bool:
        """Whether the blamed line is within three lines of the fault."""
        file, _, line = self.blamed.rpartition(":")
        return file == "ranks.py" and abs(int(line) - self.fault) <= 3


def mutants(base: Base) -> Iterator[tuple[str, int, str]]:
    """(kind, line, text of the file) of every change of what the base runs."""
    source = (FOLDER / "ranks.py").read_text()
    for function in ("split", "trained", base.many, base.step):
        for kind, line, change in _changes(_named(ast.parse(source), function)):
            tree = ast.parse(source)
            if change(_named(tree, function)):
                yield kind, line, ast.unparse(tree)


def _named(tree: ast.Module, name: str) -> ast.FunctionDef:
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)


def _changes(function: ast.FunctionDef):
    """Changes of a function, each of the same function in another tree."""
    blocks = [n for n in ast.walk(function) if isinstance(getattr(n, "body", None), list)]
    for b, block in enumerate(blocks):
        for i, statement in enumerate(block.body):
            if isinstance(statement, ast.Expr | ast.AugAssign):
                yield "left out", statement.lineno, _in_block(b, _drop(i))
            if i + 1 < len(block.body) and not isinstance(block.body[i + 1], ast.Return):
                yield "other order", statement.lineno, _in_block(b, _swap(i))
            if isinstance(statement, ast.Expr):
                yield "twice", statement.lineno, _in_block(b, _repeat(i))
    nodes = list(ast.walk(function))
    for n, node in enumerate(nodes):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            yield "number", node.lineno, _at(n, _other)
        if isinstance(node, ast.IfExp | ast.If):
            yield "condition", node.lineno, _at(n, _negate)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield "factor", node.lineno, _at(n, _times)


def _in_block(number: int, edit):
    def change(function: ast.FunctionDef) -> bool:
        blocks = [n for n in ast.walk(function) if isinstance(getattr(n, "body", None), list)]
        edit(blocks[number].body)
        return bool(blocks[number].body)

    return change


def _drop(i: int):
    return lambda body: body.pop(i)


def _swap(i: int):
    return lambda body: body.insert(i, body.pop(i + 1))


def _repeat(i: int):
    return lambda body: body.insert(i, body[i])


def _at(number: int, edit):
    def change(function: ast.FunctionDef) -> bool:
        edit(list(ast.walk(function))[number])
        return True

    return change


def _other(node) -> None:
    value = node.value
    node.value = not value if isinstance(value, bool) else value * 2 if value else 1


def _negate(node) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _times(node) -> None:
    node.op = ast.Mult()


def truth(folder: Path, base: Base) -> str:
    """What a run on gloo says."""
    stated = Statements((), read_lines(base.rows, "--input-layout"), ())
    given = [{"name": n, "shape": (8, 8), "dtype": "f32", "below": 0} for n in ("x", "y")]
    order = Order(
        of_file(base.one, folder / "one.py", {}),
        of_file(base.many, folder / "ranks.py", {}),
        base.mesh,
        tuple(given),
        step=base.step,
        modes=("train",),
    )
    pieces = Pieces(base.mesh, stated)
    try:
        ran = run(order, pieces.given, pieces.outputs, 1000)
    except LaunchError:
        return "broken"
    if ran.failed is not None or ran.unlike:
        return "broken"
    return "right" if ran.worst is None else "wrong"


def judge(base: Base, kind: str, line: int, text: str, key: str, known: str) -> Row:
    """The row of a mutant, of which `known` says what is true where that is not empty."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for file in FOLDER.glob("*.py"):
            shutil.copy(file, folder)
        (folder / "ranks.py").write_text(text)
        found = known or truth(folder, base)
        start, verdict, said, blamed = time.process_time(), "refused", "", ""
        try:
            found_of = shardproof.check(
                f"{folder}/ranks.py:{base.many}",
                f"{folder}/one.py:{base.one}",
                str(base.mesh),
                inputs=["x=f32[8,8]", "y=f32[8,8]"],
                input_layout=base.rows,
                step=base.step,
                run=False,
            )
            verdict = WORDS[type(found_of)]
            if isinstance(found_of, Counterexample) and found_of.location is not None:
                source = found_of.location.source
                said, blamed = found_of.location.reason, f"{source.file}:{source.line}"
        except Exception as problem:  # noqa: BLE001  (a row says what came of it)
            said = str(problem).splitlines()[0]
        name = f"{base.many} {base.mesh}"
        before = ast.unparse(ast.parse((FOLDER / "ranks.py").read_text())).splitlines()
        pairs = enumerate(zip(before, text.splitlines(), strict=False), 1)
        fault, now = next(((n, b.strip()) for n, (a, b) in pairs if a != b), (0, ""))
        seconds = round(time.process_time() - start, 1)
        place = f"ranks.py:{line}"
        return Row(key, name, kind, place, now, found, verdict, said, seconds, fault, blamed)


def table(rows: Sequence[Row]) -> str:
    """What was found of wrong and right ones, in Markdown."""
    wrong = [r for r in rows if r.truth == "wrong"]
    refuted = [r for r in wrong if r.verdict == "refuted"]
    right = [r for r in rows if r.truth == "right"]
    counted = {
        "right mutants proved": (sum(r.verdict == "proved" for r in right), len(right)),
        "wrong mutants proved": (sum(r.verdict == "proved" for r in wrong), len(wrong)),
        "wrong mutants refuted": (len(refuted), len(wrong)),
        "blamed line within three lines of the fault": (sum(r.near for r in refuted), len(refuted)),
    }
    said = [
        f"| {k} | {n} of {of} ({100 * n / max(of, 1):.0f} %) |" for k, (n, of) in counted.items()
    ]
    return "\n".join(["| | |", "|---|---|", *said]) + "\n"


def read(path: Path | None) -> list[Row]:
    """The rows of a file; none where there is none."""
    lines = path.read_text().splitlines() if path is not None and path.is_file() else []
    return [Row(**json.loads(line)) for line in lines]


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.step_mutants", description=__doc__)
    parser.add_argument("--most", type=int, default=0, help="mutants at most")
    parser.add_argument("--ends", type=float, default=0, help="seconds after which none is begun")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--truths", type=Path, help="rows of before: wrong ones are first, and none is run on gloo"
    )
    asked = parser.parse_args()
    rows, truths = read(asked.results), {r.key: r.truth for r in read(asked.truths)}
    todo = []
    for base in BASES:
        for kind, line, text in mutants(base):
            key = hashlib.blake2b(f"{base}{text}".encode(), digest_size=8).hexdigest()
            todo.append((base, kind, line, text, key))
    random.Random(SEED).shuffle(todo)
    todo.sort(key=lambda made: truths.get(made[-1], "wrong") != "wrong")
    known, ends = {r.key for r in rows}, time.monotonic() + (asked.ends or float("inf"))
    for base, kind, line, text, key in todo[: asked.most or None]:
        if key in known or time.monotonic() > ends:
            continue
        row = judge(base, kind, line, text, key, truths.get(key, ""))
        rows.append(row)
        with asked.results.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        print(
            f"{row.truth:6} {row.verdict:8} {row.base:16} {row.kind:12} {row.place} "
            f"{row.fault} {row.blamed} {row.said[:90]}",
            flush=True,
        )
    print(Counter((r.truth, r.verdict) for r in rows), f"of {len(todo)}")
    print(table(rows))
    if asked.results == RESULTS:
        write(DOCS / "training-step.md", "step-mutants", table(rows))
    return int(any(r.truth == "wrong" and r.verdict == "proved" for r in rows))


if __name__ == "__main__":
    sys.exit(main())
