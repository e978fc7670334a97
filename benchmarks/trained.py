"""`python -m benchmarks.trained [NAME ...]`: do models train under the patches that were written?

Models of `benchmarks.parallelize` (zoo), and those of `benchmarks.wild` and `benchmarks.kinds` of
which tp=2 splits at least half. For each the command writes a patch, git applies it to a copy of
the file, and torchrun starts a training script on gloo processes (`benchmarks/trained_run.py`),
beside one process that trains the owner's model. Rows are in `benchmarks/results/trained.jsonl`; a
run that was stopped goes on.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks import kinds
from benchmarks.kept import RESULTS, options
from benchmarks.parallelize import ROOT, ZOO, Job
from benchmarks.wild.__main__ import COUNT, MESHES, SEED
from benchmarks.wild.listed import drawn, listed
from benchmarks.wild.written import job as wild_job
from shardproof.synthesis.frontends.torch.request import InputSpec, is_library

ROWS, PAGE, WORK = RESULTS / "trained.jsonl", RESULTS / "trained.md", ROOT / "bench" / "trained"
SCRIPT = Path(__file__).with_name("trained_run.py")
LISTED = Path(__file__).with_name("trained.txt")
"""Lines of a mesh and a name: the zoo and every second of the other models on tp, of these every
fourth on dp and tp too, as they were drawn once."""
EQUAL = 1e-9
LIMIT = 600
"""Seconds that the command, or a training run, may take."""
HEAD = """# Models that train under their patches

Written by `make trained`; do not edit.

Three steps of AdamW in float64, each of which clips gradients, on gloo processes that run the
patched file and in one process that runs the owner's, from the same seed, on the same batch.
Dropout is 0, and code that names float32 gets float64. A model that draws random numbers in train
mode is trained in eval mode. The loss is the model's own, or else a mean of its outputs with random
factors.

- *Trained*: the losses and all weights afterwards differ by at most 1e-9 of the largest entry, or
  of the learning rate where that is larger, or by no more than 10 times what the owner's model
  differs by after its weights were changed by 2^-51.
- *Saved*: the full state dict of the ranks loads into the owner's model with `strict=True`, which
  then gives the outputs of the ranks, in eval mode.
- *Loaded*: the state dict of the owner's model, given to another parallel model, gives the owner's
  outputs.
- *Norm*: in each step `torch.nn.utils.clip_grad_norm_` gives the norm of one process, to 1e-9.

"""
CHECKED = {
    "saved": "the ranks' state dict in the owner's model",
    "loaded": "outputs after set_model_state_dict",
    "before": "outputs after load_state_dict before parallelize",
    "norm": "clip_grad_norm_",
}


@dataclass(frozen=True)
class Trained:
    """What came of one model on one mesh."""

    name: str
    mesh: str
    verdict: str
    """Of the command: `proved`, or `no patch`."""
    mode: str = ""
    loss: str = ""
    """`own` or `outputs`."""
    difference: float | None = None
    """The largest of losses and weights."""
    trained: bool = False
    saved: str = ""
    """What gave the full state dict, where it holds in the owner's model."""
    loaded: str = ""
    """What took the owner's state dict, where the outputs are the owner's."""
    norm: bool = False
    cause: str = ""
    """Of all that is not so."""
    seconds: float = 0.0


def jobs() -> dict[tuple[str, str], Job]:
    """By name and mesh, those of `benchmarks/trained.txt`."""
    found = {
        (j.name, m): replace(j, options=("--mesh", m, *j.options[2:])) for j in ZOO for m in MESHES
    }
    for one in drawn(listed(), COUNT, SEED):
        found |= {(one.name, mesh): wild_job(one, mesh) for mesh in MESHES}
    found |= {(job.name, mesh): job for mesh, job in kinds.jobs(MESHES)}
    lines = (line.split(" ", 1) for line in LISTED.read_text().splitlines())
    return {(name, mesh): found[name, mesh] for mesh, name in lines}


def train(job: Job, mesh: str, work: Path, kept: bool = False) -> Trained:
    """Have the patch written, apply it, and run both; `kept`: the patch of the last time."""
    started = time.monotonic()
    try:
        row = _train(job, mesh, work / f"{job.name}-{mesh}".replace("/", "-"), kept)
    except Exception as problem:  # noqa: BLE001 (any cause is a row)
        row = Trained(
            job.name, mesh, "no patch", cause=f"{type(problem).__name__}: {problem}"[:200]
        )
    return replace(row, seconds=round(time.monotonic() - started, 1))


def _train(job: Job, mesh: str, work: Path, kept: bool) -> Trained:
    out, row = work / "out", Trained(job.name, mesh, "proved")
    if not (kept and out.exists()):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        config = [x for item in job.config for x in ("--config", item)]
        given = ["--no-run" if x == "--run" else x for x in job.options]  # what follows is a run
        typed = ["parallelize", job.target, *config, *given, "--out", str(out)]
        said = _run([sys.executable, "-m", "shardproof", *typed], ROOT)
        if not (out / "patch.diff").exists():
            return replace(row, verdict="no patch", cause=_why(said))
    order = _order(job, out, work)
    for copy, what, names in (
        ("one", "one", "one process"),
        ("many", "ranks", "the ranks"),
        ("one", "back", "comparing"),
    ):
        if problem := _started(work, work / copy / order["folder"], what, order["mesh"]):
            return replace(row, cause=f"{names}: {problem}")
    return _row(row, json.loads((work / "found.json").read_text()))


def _why(said: str) -> str:
    """The line in which the command says why there is no patch."""
    lines = said.split("\n")
    told = [line for line in lines if line.startswith(("unknown ", "error ", "refuted "))]
    return " ".join((told or lines)[-1].split()[1:])[:300]


def _row(row: Trained, found: Mapping[str, Any]) -> Trained:
    """What was found, in few words."""
    causes: list[str] = []
    trained = max(found["losses"], found["beyond"]) <= EQUAL
    if not trained or found["weights"] > EQUAL:
        rounding = ", no more than by rounding" if trained else ""
        text = "losses differ by {losses:.1e}, weights by {weights:.1e} ({worst})" + rounding
        causes.append(text.format(**found))
    right = {k: not isinstance(found[k], str) and found[k] <= EQUAL for k in CHECKED}
    causes += [f"{CHECKED[k]}: {found[k]}" for k in CHECKED if not right[k]]
    by = found["loaded_by"]
    if ": " in by:
        causes.append(by)
    loaded = by if right["loaded"] else "load_state_dict before parallelize"
    return replace(
        row,
        mode=found["mode"],
        loss="own" if found["own"] else "outputs",
        difference=max(found["losses"], found["weights"]),
        trained=trained,
        saved=found["saved_by"] if right["saved"] else "",
        loaded=loaded if right["loaded"] or right["before"] else "",
        norm=right["norm"],
        cause="; ".join(causes),
    )


def _order(job: Job, out: Path, work: Path) -> dict[str, Any]:
    """What the script is told; the owner's files are copied twice, and one copy is patched."""
    program, contract, plan, manifest = (
        json.loads((out / f"{n}.json").read_text())
        for n in ("program", "contract", "plan", "manifest")
    )
    paths: list[str] = sorted(manifest["patch"]["files"], key=len, reverse=True)
    kind, _, name = job.target.rpartition(":")
    library = is_library(job.target)
    file = ROOT / kind
    path = next(p for p in paths if library or file.as_posix().endswith(f"/{p}"))
    root = Path(file.as_posix().removesuffix(f"/{path}"))
    beside = [p.relative_to(root).as_posix() for p in file.parent.glob("*.py")]
    for old in work.iterdir():
        if old != out:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for copy in (work / "one", work / "many"):
        for p in () if library else {*paths, *beside}:
            (copy / p).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / p, copy / p)
        if library or copy.name == "many":
            copy.mkdir(exist_ok=True)
            for command in (("init", "-q"), ("apply", str(out / "patch.diff"))):
                subprocess.run(["git", *command], cwd=copy, check=True)
        shutil.copy(SCRIPT, copy / Path(path).parent / "train.py")
    inputs = [i for i in program["inputs"] if i["role"] == "input"]
    outputs = [o for o in program["outputs"] if o["role"] in ("output", "loss")]
    laid = contract["outputs"]
    pairs = zip(job.options, job.options[1:], strict=False)
    specs = [InputSpec.parse(text) for option, text in pairs if option == "--input"]
    order = {
        "module": Path(path).stem,
        "folder": Path(path).parent.as_posix(),
        "class": "" if library else name,
        "function": manifest["patch"]["function"],
        "build": {"use_cache": False} if kind == "hf" else {},
        "mesh": plan["mesh"],
        "loss": plan["loss"],
        "below": {s.name: s.below for s in specs},
        "inputs": {i["path"]: (i["type"]["dtype"], i["type"]["shape"]) for i in inputs},
        "laid": {i["path"]: contract["inputs"][i["name"]]["dims"] for i in inputs},
        "outputs": [{**o, "dims": laid[f"{o['role']}:{o['path']}"]["dims"]} for o in outputs],
    }
    (work / "order.json").write_text(json.dumps(order))
    return order


def _started(work: Path, folder: Path, what: str, mesh: Mapping[str, int]) -> str:
    """Run the script: why it did not end well, or ''."""
    count = str(math.prod(mesh.values()))
    many = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count)
    start = (*many, "train.py") if what == "ranks" else ("train.py",)
    said = _run([sys.executable, *start, what], folder, TRAINED=str(work))
    errors = [p.read_text() for p in sorted(work.glob("error-*.txt"))]
    if errors:
        return next((e for e in errors if "onnection" not in e), errors[0])
    if "\nENDED" not in said:
        return ""
    (work / f"{what}.txt").write_text(said)
    told = [line for line in said.split("\n") if "exitcode" in line or "Error" in line]
    return " ".join((told or said.split("\n"))[-1].split())[:200]


def _run(command: Sequence[str], folder: Path, **more: str) -> str:
    """What it said; a last line says ENDED where it failed."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    asked: dict[str, Any] = {"cwd": folder, "env": {**env, **more}, "timeout": LIMIT, "text": True}
    try:
        done = subprocess.run(command, capture_output=True, **asked)
    except subprocess.TimeoutExpired:
        return f"\nENDED after {LIMIT} s"
    said = (done.stdout + done.stderr).strip()
    return f"{said}\nENDED with code {done.returncode}" if done.returncode else said


def page(rows: Sequence[Trained], asked: int) -> str:
    """Markdown: totals, then a line a row."""
    columns = ("trained", "saved", "loaded", "norm")
    out = [f"| mesh | patches | {' | '.join(columns)} |", "|---" * 6 + "|"]
    for mesh in MESHES:
        some = [r for r in rows if r.mesh == mesh and r.verdict == "proved"]
        have = [sum(bool(getattr(r, k)) for r in some) for k in columns]
        out.append(f"| {mesh} | {len(some)} | {' | '.join(map(str, have))} |")
    out += ["", f"{len(rows)} of {asked} rows.", ""]
    out += [f"| model | mesh | mode | loss | {' | '.join(columns)} | cause |", "|---" * 9 + "|"]
    for r in rows:
        far = "" if r.difference is None else f", {r.difference:.0e}"
        cells = [r.name, r.mesh, r.mode, r.loss, ("yes" if r.trained else "no") + far]
        cells += [r.saved or "no", r.loaded or "no", "yes" if r.norm else "no"]
        out.append(f"| {' | '.join(cells)} | {r.cause} |".replace("*", "\\*"))
    return HEAD + "\n".join(out) + "\n"


def read() -> dict[tuple[str, str], Trained]:
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    return {(r.name, r.mesh): r for r in (Trained(**json.loads(line)) for line in lines)}


def main() -> int:
    parser = options("benchmarks.trained")
    parser.add_argument("--kept", action="store_true", help="take patches of bench/trained")
    given = parser.parse_args()
    todo = jobs()
    for (name, mesh), job in todo.items():
        asked = not given.names or any(fnmatchcase(name, n) for n in given.names)
        asked = asked and mesh in (given.mesh or MESHES) and not given.page
        if not asked or ((name, mesh) in read() and not given.again):
            continue
        row = train(job, mesh, WORK, given.kept)
        rows = read() | {(name, mesh): row}
        ROWS.write_text("".join(json.dumps(asdict(rows[k])) + "\n" for k in todo if k in rows))
        print(row, file=sys.stderr)
    rows = read()
    PAGE.write_text(page([rows[k] for k in todo if k in rows], len(todo)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
