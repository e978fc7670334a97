"""`python -m benchmarks.written_steps`: training steps in many styles, and wrong twins by line.

Each folder of `benchmarks/written_steps` holds a step on one device, the same on ranks, and
`case.json`: the mesh, the inputs, and of each wrong twin what is wrong, its line and the texts that
change. They were written without sight of the verifier; `drawn` says in which of the draws. What is
true is found by running two steps on gloo in float64, against one process; then each is judged as
`shardproof check --step --no-run` does. The first verdict and line are kept beside those of now.
The command ends with 1 where a wrong one is proved.
"""

# pyright: basic

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import shardproof
from benchmarks.parallelize import ROOT
from shardproof.agent.actions.words import read_mesh
from shardproof.agent.check.contract import Statements
from shardproof.agent.check.pieces import Pieces
from shardproof.synthesis.execute.run.launcher import LaunchError
from shardproof.synthesis.execute.run.running import Order, of_file, run
from shardproof.synthesis.frontends.torch.ranks.stated import read_lines
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.proof import Proof
from shardproof.verifier.verdict import Counterexample, Unknown

FOLDER = ROOT / "benchmarks" / "written_steps"
RESULTS = ROOT / "benchmarks" / "results" / "written_steps.jsonl"
PAGE = RESULTS.with_suffix(".md")
NEAR = 3
"""Lines that a blamed line may be away from the fault."""
WORDS = {Proof: "proved", Counterexample: "refuted", Unknown: "unknown"}


@dataclass(frozen=True)
class Row:
    case: str
    twin: int
    """0: the step as it is; else the number of the wrong twin."""
    drawn: int
    what: str
    truth: str
    verdict: str
    fault: int
    blamed: str
    said: str
    seconds: float
    first: str = ""
    """The verdict when it was first judged."""
    first_blamed: str = ""

    def near(self, blamed: str) -> bool:
        file, _, line = blamed.rpartition(":")
        return file == "ranks.py" and abs(int(line) - self.fault) <= NEAR


def cases() -> dict[str, dict]:
    found = sorted(FOLDER.glob("*/case.json"))
    return {p.parent.name: json.loads(p.read_text()) for p in found}


def written(name: str, case: dict, twin: int, folder: Path) -> tuple[str, int]:
    """Put the files of a twin into the folder; what is wrong with it, and where."""
    for file in ("one.py", "ranks.py"):
        shutil.copy(FOLDER / name / file, folder)
    if not twin:
        return "", 0
    wrong = case["wrong"][twin - 1]
    text = (folder / "ranks.py").read_text()
    for old, new in wrong["edits"]:
        if text.count(old) != 1:
            raise ValueError(f"{name}: {old!r} stands {text.count(old)} times in ranks.py")
        text = text.replace(old, new)
    (folder / "ranks.py").write_text(text)
    return wrong["what"], wrong["line"]


def truth(case: dict, folder: Path) -> str:
    """What a run on gloo says."""
    params = read_lines(case.get("params", []), "--layout")
    stated = Statements(params, read_lines(case["layouts"], "--input-layout"), ())
    given = [InputSpec.parse(text) for text in case["inputs"]]
    keys = ("name", "shape", "dtype", "below", "ignored")
    mesh = read_mesh(case["mesh"])
    order = Order(
        of_file("build", folder / "one.py", {}),
        of_file("build", folder / "ranks.py", {}),
        mesh,
        tuple({k: getattr(i, k) for k in keys} for i in given),
        step="train_step",
        step_of_one="train_step",
        modes=("train",),
        calls=2,
    )
    pieces = Pieces(mesh, stated)
    try:
        ran = run(order, pieces.given, pieces.outputs, 1000)
    except LaunchError:
        return "broken"
    if ran.failed is not None or ran.unlike:
        return "broken"
    return "right" if ran.worst is None else "wrong"


def judged(name: str, case: dict, twin: int, known: str = "") -> Row:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        what, fault = written(name, case, twin, folder)
        true = known or truth(case, folder)
        start, verdict, said, blamed = time.monotonic(), "refused", "", ""
        try:
            found = shardproof.check(
                f"{folder}/ranks.py:build",
                f"{folder}/one.py:build",
                case["mesh"],
                inputs=case["inputs"],
                input_layout=case["layouts"],
                layout=case.get("params", []),
                step="train_step",
                run=False,
            )
            verdict = WORDS[type(found)]
            if isinstance(found, Counterexample) and found.location is not None:
                source = found.location.source
                said, blamed = found.location.reason, f"{source.file}:{source.line}"
            elif isinstance(found, Unknown):
                said = found.reason.splitlines()[0]
        except Exception as problem:  # noqa: BLE001  (a row says what came of it)
            said = f"{problem}"
        said = " ".join(said.replace(scratch, "").split())[:200]
        seconds = round(time.monotonic() - start, 1)
        place = (fault, blamed, said, seconds)
        return Row(name, twin, case["drawn"], what, true, verdict, *place)


def page(rows: Sequence[Row]) -> str:
    """The counts of each draw, at first and now, and the wrong twins."""
    lines = [
        "# Training steps in many styles",
        "",
        "`python -m benchmarks.written_steps` writes this page. Of the first draw, rules were made",
        "from what its twins showed before they were all judged: its first verdicts of twins are",
        "those after that. Of the second and third draw, they are those of the rules as they were.",
        "",
        "| draw | | at first | now |",
        "|---|---|---|---|",
    ]
    for drawn in sorted({r.drawn for r in rows}):
        some = [r for r in rows if r.drawn == drawn]
        right = [r for r in some if not r.twin]
        wrong = [r for r in some if r.twin]
        for said, of, word in (
            ("right steps proved", right, "proved"),
            ("right steps refuted", right, "refuted"),
            ("wrong twins proved", wrong, "proved"),
            ("wrong twins refuted", wrong, "refuted"),
        ):
            first = f"{sum(r.first == word for r in of)} of {len(of)}"
            now = f"{sum(r.verdict == word for r in of)} of {len(of)}"
            cells = f"{first} | {now}"
            lines.append(f"| {drawn} | {said} | {cells} |")
        first = [r for r in wrong if r.first == "refuted"]
        now = [r for r in wrong if r.verdict == "refuted"]
        near = sum(r.near(r.first_blamed) for r in first), sum(r.near(r.blamed) for r in now)
        cells = f"{near[0]} of {len(first)} | {near[1]} of {len(now)}"
        lines.append(f"| {drawn} | blamed line within {NEAR} lines of the fault | {cells} |")
    lines += ["", "| step | what is wrong | line | verdict | blamed |", "|---|---|---|---|---|"]
    for r in rows:
        if r.twin:
            line = r.blamed.rpartition(":")[2]
            lines.append(f"| {r.case} | {r.what} | {r.fault} | {r.verdict} | {line} |")
    return "\n".join(lines) + "\n"


def rows_of(path: Path) -> Iterator[Row]:
    if path.is_file():
        yield from (Row(**json.loads(line)) for line in path.read_text().splitlines())


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.written_steps", description=__doc__)
    parser.add_argument(
        "--case", default="", help="names, with commas, each with :TWIN where that alone is judged"
    )
    parser.add_argument("--drawn", type=int, default=0, help="this draw alone")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--truths", action="store_true", help="take what is true from the results")
    parser.add_argument("--new", action="store_true", help="only those without a row")
    parser.add_argument("--ends", type=float, default=0, help="seconds after which none is begun")
    asked = parser.parse_args()
    before = {(r.case, r.twin): r for r in rows_of(asked.results)}
    ends = time.monotonic() + (asked.ends or float("inf"))
    for name, case in cases().items():
        for twin in range(len(case["wrong"]) + 1):
            old = before.get((name, twin))
            named = {name, f"{name}:{twin}"} & set(asked.case.split(","))
            left = (asked.case and not named) or asked.drawn not in (0, case["drawn"])
            if left or (old and asked.new) or time.monotonic() > ends:
                continue
            row = judged(name, case, twin, old.truth if old and asked.truths else "")
            first = (old or row).first or row.verdict, (old or row).first_blamed or row.blamed
            made = {**asdict(row), "first": first[0], "first_blamed": first[1]}
            before[name, twin] = Row(**made)
            print(f"{name}:{twin} {row.truth} {row.verdict} {row.fault} {row.blamed}", flush=True)
            rows = sorted(before.values(), key=lambda r: (r.drawn, r.case, r.twin))
            asked.results.write_text("".join(json.dumps(asdict(r)) + "\n" for r in rows))
    rows = sorted(before.values(), key=lambda r: (r.drawn, r.case, r.twin))
    if asked.results == RESULTS:
        PAGE.write_text(page(rows))
    return int(any(r.truth == "wrong" and r.verdict == "proved" for r in rows))


if __name__ == "__main__":
    sys.exit(main())
