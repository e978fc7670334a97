"""A process of a job that does what its name says, without a model: for tests of the batch."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from shardproof.agent.run import events, outdir
from shardproof.synthesis.planner.plan import Plan, to_json
from shardproof.verifier.kernel.program.types import Mesh


def say(event: events.Event) -> None:
    print(event.model_dump_json(), flush=True)


def completed(code: int, verdict: events.VerdictWord = "unknown") -> events.RunCompleted:
    return events.RunCompleted(verdict=verdict, exit_code=code, seconds=0.5)


def write(order: dict[str, str], verdict: events.VerdictWord) -> None:
    seen = [
        events.PhaseCompleted(phase="capture", seconds=0.3),
        events.PhaseCompleted(phase="verify", seconds=0.1),
        events.PlanChosen(mesh={"tp": 2}, strategy="tp=2: 1 column, 1 row"),
        events.VerdictReached(verdict=verdict, message=f"{verdict} it is", where="m.py:3"),
        completed(0 if verdict == "proved" else 1, verdict),
    ]
    plan = Plan(Mesh.of(tp=2), tp="tp", estimates={"step_s": 0.002, "memory_bytes_after": 1024.0})
    place = os.environ.get("SHARDPROOF_BATCH_PLACE")
    at = Path(place) / "out" / Path(order["out"]).name if place else Path(order["out"])
    with outdir.staged(at) as out:
        out.write("plan.json", to_json(plan))
        out.write("events.jsonl", "".join(f"{e.model_dump_json()}\n" for e in seen))
        out.seal({"command": "fake", "verdict": verdict, "inputs": order["inputs"]})


def main() -> None:
    name = sys.argv[1]
    order = json.loads(sys.stdin.readline())
    with (Path(order["out"]).parents[2] / "started").open("a") as file:
        file.write(f"{name}\n")
    behaviour = name.split("-")[0]
    if behaviour == "silent":
        return
    say(events.RunStarted(command="parallelize", version="0"))
    say(events.PhaseStarted(phase="capture"))
    if behaviour in ("slow", "long"):
        time.sleep(0.4 if behaviour == "slow" else 6.0)
    if behaviour == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "hang":
        time.sleep(60)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    if behaviour == "noise":
        print("not an event")
        print("nor this", file=sys.stderr)
        say(completed(0, "proved"))
        return
    if behaviour == "refused":
        where = f"{name}.py:7"
        say(events.Problem(kind="input", message="no rule for aten.x (in module h.3)", where=where))
        say(completed(2))
        sys.exit(2)
    say(events.PhaseStarted(phase="plan"))
    if behaviour == "nofit":
        message = f"h.{len(name)}.attn.q: {len(name)} heads do not divide over tp=2"
        say(events.Problem(kind="input", message=message))
        say(completed(2))
        sys.exit(2)
    write(order, "refuted" if behaviour == "refuted" else "proved")
    sys.exit(1 if behaviour == "refuted" else 0)


if __name__ == "__main__":
    main()
