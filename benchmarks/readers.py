"""`python -m benchmarks.readers [NAME ...]`: whether `check` proves what `parallelize` proved.

A patch that is read again and proved is applied to a copy of the owner's files, and the patched
model is given to `check` with the model as it was, on the same mesh, with the inputs, the
layouts of inputs and outputs, and the meaning of the loss that the plan states. Rows are in
`benchmarks/results/readers.jsonl`. The command ends with 1 where one is not proved that `LEFT`
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
from benchmarks.patches.models import generate, of_file

RESULTS = ROOT / "benchmarks" / "results" / "readers.jsonl"
ATTACKS = ROOT / "tests" / "patches" / "attacks"
DRAWN = ROOT / "build" / "readers"
SEEDS = range(100_000, 100_012)
"""Of the models of `benchmarks.patches` that are drawn."""
LEFT: dict[tuple[str, str], str] = {}
"""(name, mesh) of patches that `check` does not prove, and why: it only becomes shorter."""
NO_PATCH = "no patch"
"""In place of the verdict, where `parallelize` proves none."""
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
    """Of `check`, or `NO_PATCH`."""
    said: str
    """The first line of an error, or what is at fault."""


def jobs() -> list[tuple[str, Job]]:
    """As (mesh, job): the models of `kinds`, those of `zoo-smoke`, and those whose patches
    `tests/patches` attacks, or that it draws; each on each of its meshes."""
    return [*kinds.jobs(), *(("tp=2", job) for job in ZOO), *_attacked()]


def _attacked() -> list[tuple[str, Job]]:
    files = sorted(ATTACKS.glob("*/*.py"))
    out = [(mesh, _of(f)) for f in files for mesh in of_file(f).meshes]
    DRAWN.mkdir(parents=True, exist_ok=True)
    for model in map(generate, SEEDS):
        file = DRAWN / f"drawn{model.name}.py"
        file.write_text(model.source)
        out += [(mesh, _of(file)) for mesh in model.meshes]
    return out


def _of(file: Path) -> Job:
    return Job(f"{file.parent.name}/{file.name}", f"{file.relative_to(ROOT)}:M", (), ())


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
    tree, before = scratch / "tree", scratch / "before"
    if kind == "hf":
        tree.mkdir()
        made, against, given = _library(name, request)
    else:
        owner = ROOT / kind
        shutil.copytree(owner.parent, tree, ignore=shutil.ignore_patterns("__*__"))
        shutil.copytree(tree, before)
        made, against = f"{name}(**{request['config']!r})", f"{before / owner.name}:{name}"
        file, given = owner.name, _inputs(out, request)
    _applied(tree, (out / "patch.diff").read_text(), next(iter(patch["files"])), file)
    with (tree / file).open("a") as patched:
        patched.write(WRAPPED.format(function=patch["function"], made=made))
    plan = json.loads((out / "plan.json").read_text())
    mesh = ",".join(f"{dim}={size}" for dim, size in plan["mesh"].items())
    layouts = _layouts(out, plan["loss"], plan["dp"])
    words = [f"{tree / file}:both_readers", "--against", against, "--mesh", mesh]
    return [*words, *given, *layouts, "--repair-seconds", "0", "--no-run"]


def _applied(tree: Path, diff: str, named: str, file: str) -> None:
    """Apply a patch whose paths are relative to the checkout to the copy of the file's folder."""
    folder = Path(named).parent.as_posix()
    if folder != ".":
        diff = diff.replace(f"a/{folder}/", "a/").replace(f"b/{folder}/", "b/")
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tree, input=diff, text=True, check=True)
    assert (tree / file).is_file()


def _library(name: str, request: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """What builds the patched class of the library as capture builds it, the model, and options
    for both."""
    from shardproof.synthesis.frontends.torch.request import EXPERTS
    from shardproof.synthesis.frontends.torch.target import library

    off = dict.fromkeys(library(name, {}, request["config"]).dropout, 0.0)
    fixed = {"use_cache": False, **EXPERTS, **off}
    options = [x for item in request["config"].items() for x in ("--config", "{}={}".format(*item))]
    options += [x for n in ("batch", "seq") for x in (f"--{n}", str(request[n]))]
    return f"build_model(**{fixed!r})", f"hf:{name}", options


def _inputs(out: Path, request: Mapping[str, Any]) -> list[str]:
    """Inputs that were asked for, as `--input` takes them: else both find them in the file."""
    if not request["inputs"]:
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
        texts += ["--input", f"{text}<{high}" if high else text]
    return texts


def _layouts(out: Path, loss: str, dp: str | None) -> list[str]:
    """Layouts of inputs and outputs that the contract of the plan splits, and of a loss that is the
    sum over the ranks, as options of `check`."""
    program = json.loads((out / "program.json").read_text())
    contract = json.loads((out / "contract.json").read_text())
    words: list[str] = []
    for item in program["inputs"]:
        if item["role"] == "input" and (at := _split(contract["inputs"][item["name"]])):
            words += ["--input-layout", f"{item['path'] or item['name']}={at}"]
    for item in program["outputs"]:
        path = item["path"]
        if item["role"] == "output" and (at := _split(contract["outputs"][f"output:{path}"])):
            words += ["--output-layout", f"{path}={at}"]
        elif item["role"] == "loss" and loss == "sum" and dp:
            words += ["--output-layout", f"{path}=P(sum)@{dp}"]
    return words


def _split(layout: Mapping[str, Any]) -> str:
    """`S(0)@dp`; empty where nothing is split."""
    dims = enumerate(layout["dims"])
    return ",".join(f"S({d})@{name}" for d, atoms in dims for _, name in atoms if name)


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


def measured(job: Job, mesh: str) -> Row:
    """What `check` says of a patch."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if not planned(job, mesh, scratch / "out"):
            return Row(job.name, mesh, NO_PATCH, "")
        verdict, said = checked(scratch / "out", scratch)
        return Row(job.name, mesh, verdict, "" if verdict == "proved" else said)


def main(names: Sequence[str]) -> int:
    known = {(r["name"], r["mesh"]) for r in _rows()}
    for mesh, job in jobs():
        if (names and job.name not in names) or (not names and (job.name, mesh) in known):
            continue
        row = measured(job, mesh)
        print(job.name, mesh, row.verdict, row.said, flush=True)
        with RESULTS.open("a") as out:
            out.write(json.dumps(asdict(row)) + "\n")
    found = {(r["name"], r["mesh"]): r["verdict"] for r in _rows()}
    apart = {which for which, verdict in found.items() if verdict not in ("proved", NO_PATCH)}
    proved = {which for which in LEFT if found.get(which) == "proved"}
    for name, mesh in sorted(apart - LEFT.keys()):
        print("not proved by check:", name, mesh)
    for name, mesh in sorted(proved):
        print("proved now:", name, mesh)
    print(f"{sum(v == 'proved' for v in found.values())} proved by both, {len(apart)} not by check")
    return int(bool(proved or apart - LEFT.keys()))


def _rows() -> list[dict[str, Any]]:
    lines = RESULTS.read_text().splitlines() if RESULTS.is_file() else []
    latest = {(r["name"], r["mesh"]): r for r in map(json.loads, lines)}
    return list(latest.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
