"""`python -m benchmarks.tp_plans [CLASS ...]`: whether the tensor-parallel plans that transformers
publishes compute what their models compute, and load what they compute with.

Every causal language model of the installed transformers whose class has a plan is built small and
checked on ranks as `shardproof check hf:CLASS` does: the library's own code shards it, and the
outputs, every gradient and the load are compared. Rows are kept as they come, so that a run that
was stopped goes on. `--confirm` runs what was found on real processes, and looks for repairs;
`benchmarks.tp_plans_page` writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from benchmarks import zoo
from shardproof.agent.run.events import Event, Problem, Repaired, VerdictReached
from shardproof.agent.run.run import Run, failed, interruptible

SECONDS = 900
"""For one check, of the clock."""
REPAIR_SECONDS = 300.0


@dataclass(frozen=True)
class Row:
    """What came of one class on one mesh."""

    name: str
    mesh: str
    end: str
    """`proved`, `refuted`, `unknown`, `refused` (nothing is claimed), `the library raises` (on a
    rank, not on one device), `does not build` (nor on one device) or `fault` (of ours)."""
    load: str
    """`right`, `wrong`, `the library raises` or `not looked at`."""
    what: str
    """What differs, or why there is no verdict."""
    where: str
    mode: str
    seconds: float
    """Of the clock."""
    cpu: float
    """Seconds of the processor."""
    phases: dict[str, float]
    """Of the clock."""
    run: list[str] | None = None
    """Of what was found to be wrong: what differs on real processes; None where that was not looked
    at."""
    repair: str = ""
    """A rule that, put beside the published ones, gives a plan that is proved."""
    version: str = ""
    """Of transformers."""


def version() -> str:
    import transformers

    return transformers.__version__


def planned() -> list[str]:
    """The causal language models with a plan of their own or of their base model."""
    import transformers

    out: list[str] = []
    for name in sorted(dir(transformers)):
        if not name.endswith("ForCausalLM"):
            continue
        kind: Any = getattr(transformers, name)
        if getattr(kind, "config_class", None) is not None and zoo.has_plan(name):
            out.append(name)
    return out


WIDER = re.compile(
    r"(heads|n_head|(?<!shared_)experts|hidden_size|n_embd|d_model|embedding_size|embedding_dim|^dim"
    r"|word_embed_proj_dim)$"
)
"""What there is more of on more ranks; groups of heads stay as large as they are."""


def fields(name: str, size: int) -> dict[str, Any]:
    """A small config of a class that `size` ranks can split: two heads of queries and one of keys
    for each, two experts for each."""
    return _wider(zoo.fields(name), size // 2)


def _wider(sizes: dict[str, Any], times: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in sizes.items():
        if isinstance(value, dict):
            value = _wider(cast("dict[str, Any]", value), times)
        elif isinstance(value, int) and WIDER.search(key):
            value *= times
        out[key] = value
    return out


def ranks(mesh: str) -> int:
    """How many ranks `tp=4` has."""
    return int(mesh.partition("=")[2])


class Last:
    """The last that a run says it does."""

    doing = ""

    def show(self, event: Event) -> None: ...

    def note(self, doing: str) -> None:
        self.doing = doing

    def close(self) -> None: ...


def check(name: str, mesh: str) -> Row:
    """Check one class in train mode; in eval mode where what it does in training is not covered."""
    row = check_in(name, mesh, "train")
    return check_in(name, mesh, "eval") if MORE_IN_TRAINING.search(row.what) else row


def check_in(name: str, mesh: str, mode: str, repair: bool = False) -> Row:
    """Check one class in this process, with the worker processes that are kept warm."""
    from shardproof.agent.actions.programs import Check
    from shardproof.agent.check.command import run_check

    last, begun = Last(), processor()
    run = Run([last])
    try:
        asked = Check(
            target=f"hf:{name}",
            mesh=mesh,
            config=fields(name, ranks(mesh)),
            batch=2,
            seq=8,
            mode=mode,
            repair=repair,
            repair_seconds=REPAIR_SECONDS if repair else 0,
            load="made-up",
        )
        with interruptible(SECONDS):
            run_check(run, asked)
    except Exception as error:  # noqa: BLE001
        failed(run, error, [name, mesh])
    said = next(e for e in reversed(run.seen) if isinstance(e, (VerdictReached, Problem)))
    phases = {k: round(v, 1) for k, v in run.seconds.items()}
    cpu = round(processor() - begun, 1)
    end, load = ended(said, last.doing)
    what, clock = said.message[:600], round(run.elapsed(), 1)
    diffs = [e.diff for e in run.seen if isinstance(e, Repaired)]
    rule = ", ".join(RULE.findall(diffs[-1])) if diffs else ""
    return Row(
        name,
        mesh,
        end,
        load,
        what,
        said.where,
        mode,
        clock,
        cpu,
        phases,
        repair=rule,
        version=version(),
    )


def ended(said: VerdictReached | Problem, doing: str) -> tuple[str, str]:
    """How the programs and the load ended."""
    what = said.message
    if isinstance(said, VerdictReached):
        if what.startswith("load: "):
            return "proved", "wrong"
        wrong = "the load is wrong too" in what
        return said.verdict, "wrong" if wrong else "right" if said.verdict == "proved" else NOT
    if what.startswith("while a rank is loaded: "):
        return "proved", RAISES if RAISED.match(what.split(": ", 1)[1]) else NOT
    if said.traceback_file:
        return "fault", NOT
    if not RAISED.match(what):
        return ("does not build" if "refuses its fields" in what else "refused"), NOT
    on_ranks = doing.startswith("trace") and "one device" not in doing
    return (RAISES if on_ranks else "does not build"), NOT


NOT = "not looked at"
RULE = re.compile(r'^\+\s*("[^"]+": "[^"]+")', re.MULTILINE)
RAISES = "the library raises"
MORE_IN_TRAINING = re.compile("draws random numbers|changes the parameter")
RAISED = re.compile(r"[A-Za-z_.]*(Error|Exception)\b")
"""The message of an exception that is none of ours."""


def processor() -> float:
    """Seconds of the processor, of this process and of what ended below the one it keeps warm."""
    from shardproof.synthesis.frontends.torch import process

    ticks = 0
    for server in process._servers.values():  # pyright: ignore[reportPrivateUsage]
        stat = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, stat[11:15]))
    own = os.times()
    return own.user + own.system + ticks / os.sysconf("SC_CLK_TCK")


def found(row: Row) -> bool:
    """Whether something was found to be wrong with a plan or its load."""
    return row.end in ("refuted", RAISES) or row.load in ("wrong", RAISES)


def confirmed(row: Row) -> Row:
    """The finding, run on real processes by the library alone; and rules that repair the plan."""
    command = [sys.executable, "-m", "benchmarks.tp_plan_run", row.name, str(ranks(row.mesh))]
    done = subprocess.run(
        [*command, *(["eval"] if row.mode == "eval" else [])], capture_output=True, text=True
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-600:]}")
    lines = [x for x in done.stdout.splitlines() if x.startswith(differing(row))]
    refuted = row.end == "refuted"
    rule = check_in(row.name, row.mesh, row.mode, repair=True).repair if refuted else ""
    return replace(row, run=lines[:4], repair=rule)


def differing(row: Row) -> str:
    """How a line of a run begins that shows what was found: an error, a weight after the load, the
    gradient or the output that is refuted."""
    if RAISES in (row.end, row.load):
        return "rank "
    if row.end == "proved":
        return "weight "
    key = row.what.partition("[")[0]
    return key.replace("grad:", "gradient ").removeprefix("output:").replace("loss:loss", "loss")


def run_confirmed(rows: dict[tuple[str, str], Row], path: Path) -> None:
    """Confirm what was found and is not yet."""
    for key, row in rows.items():
        if found(row) and row.run is None:
            rows[key] = confirmed(row)
            print(row.name, row.mesh, rows[key].run, rows[key].repair, file=sys.stderr, flush=True)
            path.write_text("".join(json.dumps(asdict(r)) + "\n" for r in rows.values()))


def ends(rows: dict[tuple[str, str], Row]) -> Counter[tuple[str, str]]:
    return Counter((r.end, r.load) for r in rows.values())


def main() -> int:
    """0 if no check ended with a fault of ours."""
    parser = argparse.ArgumentParser(prog="benchmarks.tp_plans")
    parser.add_argument("names", nargs="*", help="classes; all that have a plan if none are named")
    parser.add_argument("--mesh", action="append", help="tp=2 and tp=4 if none is named")
    parser.add_argument("--results", type=Path, default=Path("out/tp_plans.jsonl"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--confirm", action="store_true", help="run what was found on processes")
    given = parser.parse_args()
    results: Path = given.results
    results.parent.mkdir(parents=True, exist_ok=True)
    held = results.read_text().splitlines() if results.exists() else []
    rows = {(r.name, r.mesh): r for r in (Row(**json.loads(line)) for line in held)}
    if given.confirm:
        run_confirmed(rows, given.results)
        return 0
    meshes = given.mesh or ("tp=2", "tp=4")
    todo = [(n, m) for n in given.names or planned() for m in meshes if (n, m) not in rows]
    with ProcessPoolExecutor(given.jobs) as pool:
        for done in as_completed([pool.submit(check, *pair) for pair in todo]):
            row = done.result()
            rows[row.name, row.mesh] = row
            with given.results.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
            said = f"{row.name} {row.mesh}: {row.end}, load {row.load}, {row.cpu} s"
            print(said, file=sys.stderr, flush=True)
    print(*(f"{n} {end}, load {load}" for (end, load), n in ends(rows).most_common()), sep="\n")
    return int(any(r.end == "fault" for r in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
