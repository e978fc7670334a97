"""`python -m benchmarks.parallelize zoo|full`: whole runs of the command, one row each.

`zoo` takes small configs of transformers models, on two processes each; `full` takes Llama 3 at
its true sizes, planned and proved for eight ranks but not run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HUNG = 900
"""Seconds after which a command is ended: it takes a `--timeout`, and should end itself."""
OUR_FAULT = 70
TRACEBACK = "Traceback (most recent call last)"
PHASES = ("capture", "plan", "verify", "emit", "read", "check", "run")


@dataclass(frozen=True)
class Job:
    name: str
    target: str
    config: tuple[str, ...]
    options: tuple[str, ...]


def _small(name: str, **config: int) -> Job:
    items = tuple(f"{key}={value}" for key, value in config.items())
    options = ("--mesh", "tp=2", "--batch", "4", "--seq", "8", "--run")
    return Job(name, f"hf:{name}", items, options)


def _decoder(name: str, **more: int) -> Job:
    return _small(
        name,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        **more,
    )


ZOO = (
    _small("GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=32, vocab_size=64),
    _decoder("LlamaForCausalLM"),
    _decoder("Qwen3ForCausalLM", head_dim=8),
    _decoder("MistralForCausalLM", head_dim=8),
    _decoder("GemmaForCausalLM", head_dim=8),
    _small(
        "BertForMaskedLM",
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=64,
    ),
)
FULL = tuple(
    Job(
        f"Llama 3 {size}",
        "hf:LlamaForCausalLM",
        (str(ROOT / "examples" / f"llama3-{size.lower()}.json"),),
        ("--mesh", "tp=8", "--batch", "1", "--seq", "8192", "--no-run"),
    )
    for size in ("8B", "70B", "405B")
)


@dataclass(frozen=True)
class Row:
    name: str
    code: int
    verdict: str
    seconds: dict[str, float]
    total: float
    peak_bytes: int
    difference: float | None
    error: str
    plan: str = ""
    useful: bool = False
    estimates: dict[str, float] = field(default_factory=dict[str, float])
    processor: float = 0.0
    """Seconds of the processor, of the command and all that it started."""
    clock: float = 0.0


def measure(job: Job) -> Row:
    """Run one job in a process of its own."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as shown,
    ):
        config = [x for item in job.config for x in ("--config", item)]
        options = [*config, *job.options, "--out", str(Path(scratch) / "out"), "--json"]
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "shardproof", "parallelize", job.target, *options],
            stdout=out,
            stderr=shown,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        hung = threading.Timer(HUNG, process.kill)
        hung.start()
        _, status, usage = os.wait4(process.pid, 0)
        hung.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        events: list[dict[str, Any]] = [json.loads(line) for line in out if line.endswith("}\n")]
        shown.seek(0)
        crashed = TRACEBACK in shown.read() or process.returncode == OUR_FAULT
    ran = next((e for e in events if e["event"] == "executed"), None)
    clock, processor = time.monotonic() - started, usage.ru_utime + usage.ru_stime
    plans = [e for e in events if e["event"] == "plan"]
    said = [_said(e) for e in events if e["event"] in ("error", "verdict")]
    if crashed or not events or "verdict" not in events[-1]:
        verdict = "hang" if clock > HUNG else "crash"
        why = said[-1] if said else "no verdict"
        code = process.returncode or 1
        return Row(job.name, code, verdict, {}, clock, 0, None, why, processor=processor)
    return Row(
        job.name,
        process.returncode,
        events[-1]["verdict"],
        {e["phase"]: e["seconds"] for e in events if e["event"] == "phase.completed"},
        events[-1]["seconds"],
        usage.ru_maxrss * 1024,
        ran["largest_relative_difference"] if ran else None,
        "" if process.returncode == 0 else said[-1],
        plans[-1]["strategy"] if plans else "",
        bool(plans) and plans[-1]["useful"],
        plans[-1]["estimates"] if plans else {},
        processor,
        clock,
    )


def _said(event: dict[str, Any]) -> str:
    """The first line of a verdict or an error, its place and the way on."""
    parts = [event["message"].split("\n")[0], event.get("where", ""), event.get("hint", "")]
    return "; ".join(filter(None, parts))


def table(rows: list[Row]) -> str:
    """Markdown."""
    head = ["model", "verdict", *(f"{p} s" for p in PHASES), "total s", "peak GB", "difference"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        times = [f"{row.seconds[p]:.2f}" if p in row.seconds else "" for p in PHASES]
        difference = "" if row.difference is None else f"{row.difference:.1e}"
        end = [f"{row.total:.1f}", f"{row.peak_bytes / 1e9:.2f}", difference]
        lines.append("| " + " | ".join([row.name, row.verdict, *times, *end]) + " |")
    return "\n".join(lines)


def main() -> int:
    """0 if every job ended proved (and, where it was run, agreed)."""
    parser = argparse.ArgumentParser(prog="benchmarks.parallelize")
    parser.add_argument("which", choices=("zoo", "full"))
    chosen = ZOO if parser.parse_args().which == "zoo" else FULL
    rows: list[Row] = []
    for job in chosen:
        row = measure(job)
        rows.append(row)
        print(f"{row.name}: {row.verdict} in {row.total:.1f} s {row.error}", file=sys.stderr)
    print(table(rows))
    return max(row.code for row in rows)


if __name__ == "__main__":
    sys.exit(main())
