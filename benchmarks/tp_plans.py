"""`python -m benchmarks.tp_plans [CLASS ...]`: whether the tensor-parallel plans that transformers
publishes compute what their models compute.

Every causal language model of the installed transformers whose class has a plan is built small and
checked on ranks as `shardproof check hf:CLASS` does: the library's own code shards it, and the
outputs, the loss and every gradient are compared. Rows are kept as they come, so that a run that
was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.zoo import MODELS, SIZES

SECONDS = 300
"""For one class, of the clock."""


@dataclass(frozen=True)
class Row:
    """What came of one class on one mesh."""

    name: str
    mesh: str
    end: str
    """`proved`, `refuted`, `unknown`, `refused` or `fault`."""
    what: str
    """What differs, or why there is no verdict."""
    where: str
    seconds: float
    """Of the clock."""


def planned() -> list[str]:
    """The causal language models with a plan of their own or of their base model."""
    import transformers

    out: list[str] = []
    for name in sorted(dir(transformers)):
        if not name.endswith("ForCausalLM"):
            continue
        kind: Any = getattr(transformers, name)
        config = getattr(kind, "config_class", None)
        if config is None:
            continue
        if getattr(config, "base_model_tp_plan", None) or getattr(kind, "_tp_plan", None):
            out.append(name)
    return out


def fields(name: str) -> dict[str, Any]:
    """A small config of a class."""
    import transformers

    kind: Any = getattr(transformers, name).config_class
    known = {*kind().to_dict(), *kind.attribute_map}
    more = next((group[name] for group in MODELS.values() if name in group), {})
    return {**{k: v for k, v in SIZES.items() if k in known}, **more}


def check(name: str, mesh: str, mode: str) -> Row:
    """Run the command on one class."""
    config = [x for k, v in fields(name).items() for x in ("--config", f"{k}={json.dumps(v)}")]
    options = ["--mesh", mesh, "--batch", "2", "--seq", "8", "--mode", mode, "--json"]
    command = [sys.executable, "-m", "agent", "check", f"hf:{name}", *config, *options]
    started = time.monotonic()
    limit = ["--timeout", str(SECONDS)]
    done = subprocess.run([*command, *limit], capture_output=True, text=True, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    seconds = round(time.monotonic() - started, 1)
    said = next((e for e in reversed(events) if e["event"] in ("verdict", "error")), None)
    if said is None:
        return Row(name, mesh, "fault", done.stderr.strip()[-300:], "", seconds)
    what = str(said["message"]).split("\n")[0]
    if said["event"] == "verdict":
        return Row(name, mesh, said["verdict"], what, said["where"], seconds)
    end = "fault" if said["traceback_file"] else "refused"
    return Row(name, mesh, end, what, said["where"], seconds)


def table(rows: list[Row]) -> str:
    """Markdown: what is not proved, by how it ended; then how many ended how."""
    lines = ["| class | mesh | verdict | what differs, or why there is none | where |"]
    lines += ["|---|---|---|---|---|"]
    for r in sorted(rows, key=lambda r: (r.end, r.name)):
        if r.end != "proved":
            what = r.what.replace("|", "\\|")
            lines.append(f"| {r.name} | {r.mesh} | {r.end} | {what} | {r.where} |")
    ends = Counter(r.end for r in rows)
    total = ", ".join(f"{n} {end}" for end, n in ends.most_common())
    return "\n".join([*lines, "", f"{len(rows)} checks: {total}."])


def main() -> int:
    """0 if no check ended with a fault of ours."""
    parser = argparse.ArgumentParser(prog="benchmarks.tp_plans")
    parser.add_argument("names", nargs="*", help="classes; all that have a plan if none are named")
    parser.add_argument("--mesh", action="append", help="tp=2 and tp=4 if none is named")
    parser.add_argument("--mode", default="train", choices=("train", "eval"))
    parser.add_argument("--results", type=Path, default=Path("out/tp_plans.jsonl"))
    given = parser.parse_args()
    given.results.parent.mkdir(parents=True, exist_ok=True)
    held = given.results.read_text().splitlines() if given.results.exists() else []
    rows = {(r.name, r.mesh): r for r in (Row(**json.loads(line)) for line in held)}
    for name in given.names or planned():
        for mesh in given.mesh or ("tp=2", "tp=4"):
            if (name, mesh) in rows:
                continue
            found = rows[name, mesh] = check(name, mesh, given.mode)
            with given.results.open("a") as file:
                file.write(json.dumps(asdict(found)) + "\n")
            print(f"{name} {mesh}: {found.end} in {found.seconds} s", file=sys.stderr)
    print(table(list(rows.values())))
    return int(any(r.end == "fault" for r in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
