"""`python -m benchmarks.readers [NAME ...]`: whether `check` proves what `parallelize` proved.

A patch that is read again and proved is applied to a copy of the owner's files, and the patched
model is given to `check` with the model as it was, on the same mesh, with the inputs and their
layouts that the contract of the plan states. Rows are
in `benchmarks/results/readers.jsonl`. The command ends with 1 where one is not proved that `LEFT`
does not name, or one that it names is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import kinds
from benchmarks.parallelize import ROOT, ZOO, Job

RESULTS = ROOT / "benchmarks" / "results" / "readers.jsonl"
LEFT = frozenset(
    (name, "tp=2") for name in ("language.py:Lstm", "language.py:Recurrent", "resnet.py:ResNet")
)
"""(name, mesh) of patches that `check` does not prove yet: the list only becomes shorter."""
WALL_S = 300
WRAPPED = """

def both_readers(mesh):
    return {function}({made}, mesh)
"""


@dataclass(frozen=True)
class Row:
    name: str
    mesh: str
    verdict: str
    """Of `check`."""
    said: str
    """The first line of an error, or what is at fault."""


def jobs() -> list[tuple[str, Job]]:
    """The models of `kinds` on each of its meshes, and those of `zoo-smoke`, as (mesh, job)."""
    return [*kinds.jobs(), *(("tp=2", job) for job in ZOO)]


def planned(job: Job, mesh: str, out: Path) -> bool:
    """Whether `parallelize` proves it; `out` is its directory then."""
    config = [x for item in job.config for x in ("--config", item)]
    kept = [word for word in job.options if word != "--run"]
    if "--mesh" not in kept:
        kept += ["--mesh", mesh]
    words = [job.target, *config, *kept, "--no-run", "--out", str(out), "--json"]
    return _events("parallelize", *words, cwd=ROOT)[-1].get("verdict") == "proved"


def checked(out: Path, scratch: Path) -> tuple[str, str]:
    """The verdict of `check` on the patch in an out-directory, and what it says with it."""
    events = _events("check", *question(out, scratch), "--json", cwd=scratch)
    said = [e["message"].split("\n")[0] for e in events if e["event"] in ("error", "verdict")]
    return events[-1].get("verdict", "crash"), said[-1] if said else ""


def question(out: Path, scratch: Path) -> list[str]:
    """The words that ask `check` about the patch in an out-directory; its files are written to
    `scratch`."""
    manifest = json.loads((out / "manifest.json").read_text())
    request, patch = manifest["request"], manifest["patch"]
    (file,) = patch["files"]
    kind, _, name = request["target"].rpartition(":")
    tree = scratch / "tree"
    if kind == "hf":
        tree.mkdir()
    else:
        shutil.copytree(Path(kind).resolve().parent, tree, ignore=shutil.ignore_patterns("__*__"))
        file = Path(kind).name
    before = scratch / "before"
    shutil.copytree(tree, before)
    _applied(tree, (out / "patch.diff").read_text(), next(iter(patch["files"])), file)
    made = "build_model()" if kind == "hf" else f"{name}(**{request['config']!r})"
    with (tree / file).open("a") as patched:
        patched.write(WRAPPED.format(function=patch["function"], made=made))
    if kind == "hf":
        (before / "one.py").write_text(_library(tree / file, name))
        against = f"{before / 'one.py'}:One"
    else:
        against = f"{before / file}:{name}"
    plan = json.loads((out / "plan.json").read_text())
    mesh = ",".join(f"{dim}={size}" for dim, size in plan["mesh"].items())
    inputs = [x for text in _inputs(out, request) for x in ("--input", text)]
    inputs += [x for text in _layouts(out) for x in ("--input-layout", text)]
    words = [f"{tree / file}:both_readers", "--against", against, "--mesh", mesh, *inputs]
    return [*words, "--repair-seconds", "0", "--no-run"]


def _applied(tree: Path, diff: str, named: str, file: str) -> None:
    """Apply a patch whose paths are relative to the checkout to the copy of the file's folder."""
    folder = Path(named).parent.as_posix()
    if folder != ".":
        diff = diff.replace(f"a/{folder}/", "a/").replace(f"b/{folder}/", "b/")
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tree, input=diff, text=True, check=True)
    assert (tree / file).is_file()


def _library(patched: Path, name: str) -> str:
    """A one-device model of a class of the library, with the config that the patch has."""
    text = patched.read_text()
    config = text[text.index("CONFIG = {") : text.index("\n}\n", text.index("CONFIG = {")) + 3]
    line = next(line for line in text.splitlines() if line.startswith("from transformers import "))
    kind = next(n.strip() for n in line.removeprefix("from transformers import ").split(",")
                if n.strip().endswith("Config"))  # fmt: skip
    return (
        f"from transformers import {kind}, {name}\n\n{config}\n\nclass One({name}):\n"
        f"    def __init__(self):\n        super().__init__({kind}(**CONFIG))\n"
    )


def _inputs(out: Path, request: Mapping[str, Any]) -> list[str]:
    """Inputs as `--input` takes them; none where both find them in the owner's file."""
    if not request["inputs"] and not request["target"].startswith("hf:"):
        return []
    program = json.loads((out / "program.json").read_text())
    given = {s["name"]: s["below"] for s in request["inputs"]}
    texts: list[str] = []
    for item in program["inputs"]:
        if item["role"] != "input":
            continue
        shape = ",".join(map(str, item["type"]["shape"]))
        text = f"{item['name']}={item['type']['dtype']}[{shape}]"
        high = given.get(item["name"])
        texts.append(f"{text}<{high}" if high else text)
    return texts


def _layouts(out: Path) -> list[str]:
    """Layouts of inputs that the contract of the plan splits, as `--input-layout` takes them."""
    program = json.loads((out / "program.json").read_text())
    inputs = json.loads((out / "contract.json").read_text())["inputs"]
    texts: list[str] = []
    for item in program["inputs"]:
        if item["role"] == "input":
            dims = enumerate(inputs[item["name"]]["dims"])
            split = [f"S({d})@{name}" for d, atoms in dims for _, name in atoms if name]
            texts += [f"{item['path'] or item['name']}={','.join(split)}"] if split else []
    return texts


def _events(*words: str, cwd: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "shardproof", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=2 * WALL_S,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")] or [{}]


def measured(job: Job, mesh: str) -> Row | None:
    """What `check` says of a patch; None where there is none that is proved."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if not planned(job, mesh, scratch / "out"):
            return None
        verdict, said = checked(scratch / "out", scratch)
        return Row(job.name, mesh, verdict, "" if verdict == "proved" else said)


def main(names: Sequence[str]) -> int:
    known = {(r["name"], r["mesh"]) for r in _rows()}
    for mesh, job in jobs():
        if (names and job.name not in names) or (not names and (job.name, mesh) in known):
            continue
        row = measured(job, mesh)
        print(job.name, mesh, *(("not proved",) if row is None else (row.verdict, row.said)))
        if row is not None:
            with RESULTS.open("a") as out:
                out.write(json.dumps(asdict(row)) + "\n")
    apart = {(r["name"], r["mesh"]) for r in _rows() if r["verdict"] != "proved"}
    for name, mesh in sorted(apart ^ LEFT):
        print("not proved by check:" if (name, mesh) in apart else "proved now:", name, mesh)
    return int(apart != LEFT)


def _rows() -> list[dict[str, Any]]:
    lines = RESULTS.read_text().splitlines() if RESULTS.is_file() else []
    latest = {(r["name"], r["mesh"]): r for r in map(json.loads, lines)}
    return list(latest.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
