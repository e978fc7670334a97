"""`python -m benchmarks.step_mutants`: faults in the source of training steps.

One place of the `ranks.py` of a right step is changed: a statement is left out, two change places,
a number, a condition or an argument is another. Each mutant is judged as `shardproof check --step
--no-run` does. Whether it is wrong is found by running it: three steps of three seeds on gloo in
float64, against one process. Rows are kept as they come; a run that was stopped goes on. A table of
them goes to docs/training-step.md. The command ends with 1 where a wrong one is proved.
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
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.proof import Proof
from shardproof.verifier.verdict import Counterexample, Unknown

EXAMPLES = ROOT / "examples" / "steps"
STEPPED = ROOT / "benchmarks" / "stepped"
RESULTS = ROOT / "benchmarks" / "results" / "step_mutants.jsonl"
SEED = 0
MOST_SAID = 300
STEPS = 3
WORDS = {Proof: "proved", Counterexample: "refuted", Unknown: "unknown"}


@dataclass(frozen=True)
class Base:
    """A right step: `ranks.py` and `one.py` of a folder, the function of each that builds what is
    trained, the mesh, and the inputs with the mesh dims over which their rows are."""

    folder: Path
    many: str
    one: str
    mesh: Mesh
    inputs: tuple[str, ...] = ("x=f32[8,8]", "y=f32[8,8]")
    over: tuple[str, ...] = ("dp",)
    step: str = "train_step"
    most: int = 60
    """Mutants at most, drawn."""

    @property
    def name(self) -> str:
        of = "" if self.folder == EXAMPLES else f"{self.folder.name}."
        return f"{of}{self.many} {self.mesh}"

    @property
    def layouts(self) -> tuple[str, ...]:
        rows = ",".join(f"S(0)@{dim}" for dim in self.over)
        return tuple(f"{i.partition('=')[0]}={rows}" for i in self.inputs if rows)

    def key(self, text: str) -> str:
        """Of a mutant, by all that its row depends on."""
        one = (self.folder / "one.py").read_text()
        said = f"{self.name} {self.one} {self.step} {self.inputs} {self.over}\n{one}\n{text}"
        return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def written(name: str, build: str, mesh: Mesh, *inputs: str, over: tuple[str, ...] = ("dp",)):
    """A step of `benchmarks/stepped`."""
    return Base(STEPPED / name, build, build, mesh, inputs, over, most=45)


DP, TP, HYBRID = Mesh.of(dp=2), Mesh.of(tp=2), Mesh.of(replica=2, dp=2)
ROWS = ("x=f32[8,8]", "y=f32[8,8]")
TEXT = ("ids=i64[4,6]<16", "labels=i64[4,6]<16")
BASES = (
    Base(EXAMPLES, "sharded", "adamw", DP),
    Base(EXAMPLES, "replicated", "adamw", DP),
    Base(EXAMPLES, "by_hand", "adamw", DP),
    Base(EXAMPLES, "both", "adamw", Mesh.of(dp=2, tp=2)),
    written("hybrid", "build", HYBRID, "x=f32[16,8]", "y=f32[16,4]", over=("replica", "dp")),
    written("clipped", "setup", DP, "inputs=f32[8,8]", "targets=f32[8,4]"),
    written("owned", "init", DP, *ROWS),
    written("columns", "make", TP, "x=f32[2,4,8]", "y=f32[2,4,8]", over=()),
    written("buckets", "create", DP, "data=f32[8,8]", "label=f32[8,8]"),
    written("counted", "prepare", DP, *TEXT),
    written("averaging", "build", DP, "x=f32[8,8]", "target=f32[8,8]"),
    written("scaled", "init", DP, *ROWS),
    written("sequence", "construct", TP, *ROWS, over=("tp",)),
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
    source = (base.folder / "ranks.py").read_text()
    before = ast.unparse(ast.parse(source))
    for number in _reached(ast.parse(source), (base.many, base.step)):
        for kind, line, change in _changes(_function(ast.parse(source), number)):
            tree = ast.parse(source)
            if change(_function(tree, number)) and (text := ast.unparse(tree)) != before:
                yield kind, line, text


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]


def _function(tree: ast.Module, number: int) -> ast.FunctionDef:
    return _functions(tree)[number]


def _reached(tree: ast.Module, names: Sequence[str]) -> Iterator[int]:
    """The functions of these names and what they name, also methods; as numbers among all."""
    tops = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    found, todo = set[str](), list(names)
    while todo:
        if (name := todo.pop()) in tops and name not in found:
            found.add(name)
            todo += [n.id for n in ast.walk(tops[name]) if isinstance(n, ast.Name)]
    held = {id(n) for name in found for n in ast.walk(tops[name])}
    yield from (i for i, n in enumerate(_functions(tree)) if id(n) in held)


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
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            yield "factor", node.lineno, _at(n, _times)
        if isinstance(node, ast.Call) and node.keywords:
            yield "argument", node.lineno, _at(n, lambda call: call.keywords.pop())


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
    stated = Statements((), read_lines(base.layouts, "--input-layout"), ())
    given = [InputSpec.parse(text) for text in base.inputs]
    order = Order(
        of_file(base.one, folder / "one.py", {}),
        of_file(base.many, folder / "ranks.py", {}),
        base.mesh,
        tuple({k: getattr(i, k) for k in ("name", "shape", "dtype", "below")} for i in given),
        step=base.step,
        step_of_one=base.step,
        modes=("train",),
        calls=STEPS,
    )
    pieces = Pieces(base.mesh, stated)
    try:
        ran = run(order, pieces.given, pieces.outputs, 1000)
    except LaunchError:
        return "broken"
    if ran.failed is not None or ran.unlike:
        return "broken"
    return "right" if ran.worst is None else "wrong"


def judge(base: Base, kind: str, line: int, text: str, known: str) -> Row:
    """The row of a mutant, of which `known` says what is true where that is not empty."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for file in base.folder.glob("*.py"):
            shutil.copy(file, folder)
        (folder / "ranks.py").write_text(text)
        found = known or truth(folder, base)
        start, verdict, said, blamed = time.process_time(), "refused", "", ""
        try:
            found_of = shardproof.check(
                f"{folder}/ranks.py:{base.many}",
                f"{folder}/one.py:{base.one}",
                str(base.mesh),
                inputs=list(base.inputs),
                input_layout=base.layouts,
                step=base.step,
                run=False,
            )
            verdict = WORDS[type(found_of)]
            if isinstance(found_of, Counterexample) and found_of.location is not None:
                source = found_of.location.source
                said, blamed = found_of.location.reason, f"{source.file}:{source.line}"
            elif isinstance(found_of, Unknown):
                said = found_of.reason.splitlines()[0]
        except Exception as problem:  # noqa: BLE001  (a row says what came of it)
            said = str(problem).splitlines()[0]
        before = ast.unparse(ast.parse((base.folder / "ranks.py").read_text())).splitlines()
        pairs = enumerate(zip(before, text.splitlines(), strict=False), 1)
        fault, now = next(((n, b.strip()) for n, (a, b) in pairs if a != b), (0, ""))
        seconds = round(time.process_time() - start, 1)
        place, key = f"ranks.py:{line}", base.key(text)
        said = said[:MOST_SAID]
        return Row(key, base.name, kind, place, now, found, verdict, said, seconds, fault, blamed)


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
    parser.add_argument("--base", default="", help="what it builds, such as hybrid.build")
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
        if asked.base not in ("", base.name.partition(" ")[0]):
            continue
        made = {base.key(text): (base, kind, line, text) for kind, line, text in mutants(base)}
        drawn = random.Random(SEED).sample(list(made), min(base.most, len(made)))
        todo += [(*made[key], key) for key in drawn]
    random.Random(SEED).shuffle(todo)
    todo.sort(key=lambda made: truths.get(made[-1], "wrong") != "wrong")
    known, ends = {r.key for r in rows}, time.monotonic() + (asked.ends or float("inf"))
    for base, kind, line, text, key in todo[: asked.most or None]:
        if key in known or time.monotonic() > ends:
            continue
        row = judge(base, kind, line, text, truths.get(key, ""))
        rows.append(row)
        with asked.results.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        print(
            f"{row.truth:6} {row.verdict:8} {row.base:24} {row.kind:12} {row.place} "
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
