"""`python -m benchmarks.published_code [NAME ...]`: parallel code that people publish, checked.

Packages are used as they are, from an environment of their own (`make check-published`); examples
of PyTorch are written anew. Each row is one command of `shardproof check`: a right program with its
verdict, or its wrong twin, whose fault is on the line that ends in `# fault`. Ends in 1 where a
verdict is another than the expected one, or a command takes more than 20 s of the processor.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "benchmarks/published"
RESULTS = ROOT / "benchmarks" / "results" / "published_code.json"
LIMIT = 20.0
"""Seconds of the processor, of one command."""


@dataclass(frozen=True)
class Row:
    """A program, what it is checked against, and the verdict that it deserves."""

    name: str
    target: str
    against: str
    options: str
    expected: str = "proved"

    @property
    def command(self) -> list[str]:
        target = self.target if self.target.startswith("examples/") else f"{FOLDER}/{self.target}"
        against = self.against
        if against != "same@1":
            against = f"{target.partition(':')[0]}:{against}"
        return ["check", target, "--against", against, *shlex.split(self.options)]


IDS = '"ids=i64[2,3]<24"'
LABELS = '"labels=i64[2,3]<24"'
CP = '--mesh cp=2 --input "x=f32[1,4,8]" --input-layout "x=S(1)@cp" --output-layout "*=S(1)@cp"'
RING = CP.replace("4,8", "2,2") + " --config hidden=2 --config heads=1"
EP = '--mesh ep=2 --input "x=f32[4,8]" --input-layout "x=S(0)@ep" --output-layout "*=S(0)@ep"'
ROWS = '--mesh tp=2 --input "x=f32[4,8]" --input-layout "x=S(0)@tp"'
SEQUENCE = (
    '--mesh tp=2 --input "x=f32[4,2,8]" --input-layout "x=S(0)@tp" --output-layout "*=S(0)@tp"'
)
PART = '--mesh dp=2 --input "x=f32[4,8]" --input-layout "x=S(0)@dp"'
LOSS = '--input "x=f32[4,2,8]" --input-layout "x=S(0)@dp"'
BOTH = '--input-layout "x=[2@replica 2@dp 1][8]"'
HSDP = f'--mesh replica=2,dp=2 --input "x=f32[4,8]" {BOTH}'
SUMMED = " --after-backward summed"
PIPELINE = "examples/check/pipeline.py"

RIGHT = (
    Row("pytorch, tensor parallel", "torch_examples.py:tensor_parallel", "Toy",
        '--mesh tp=2 --input "x=f32[4,8]"'),
    Row("pytorch, sequence parallel", "torch_examples.py:sequence_parallel", "Toy", ROWS),
    Row("pytorch, FSDP and tensor parallel", "torch_examples.py:split_and_sharded", "Small",
        f"--mesh dp=2,tp=2 {LOSS}"),
    Row("fully_shard in bfloat16", "torch_examples.py:sharded", "Trained", PART),
    Row("HSDP", "torch_examples.py:sharded_and_repeated", "Trained", HSDP),
    Row("DistributedDataParallel", "torch_examples.py:averaged", "Trained", PART),
    Row("1F1B pipeline of two stages", f"{PIPELINE}:one_forward_one_backward", "Model",
        "--mesh pp=2"),
    Row("Megatron, column and row", "megatron_layers.py:SplitBlock", "Block",
        '--mesh tp=2 --input "x=f32[4,2,8]"'),
    Row("Megatron, sequence parallel", "megatron_layers.py:SequenceBlock", "Block",
        f"{SEQUENCE} --after-backward bias_summed --device-free"),
    Row("Megatron, vocabulary and cross entropy", "megatron_layers.py:SplitLanguage", "Language",
        f"--mesh tp=2 --input {IDS} --input {LABELS}"),
    Row("fairscale, embedding, column and row", "fairscale_layers.py:SplitBlock", "Block",
        f"--mesh tp=2 --input {IDS}"),
    Row("fairscale, cross entropy", "fairscale_layers.py:SplitLanguage", "Language",
        f'--mesh tp=2 --input "x=f32[2,3,8]" --input {LABELS}'),
    Row("llama of fairscale's layers, complex rotary", "llama.py:Layer", "same@1",
        '--mesh tp=2 --input "x=f32[2,3,16]"'),
    Row("yunchang, ring of messages", "long_context.py:Ring", "Attention", RING + SUMMED),
    Row("yunchang, Ulysses", "long_context.py:Ulysses", "Attention",
        CP.replace("4,8", "4,4") + SUMMED),
    Row("experts by all_to_all", "experts.py:SplitExperts", "Experts", EP + SUMMED),
)  # fmt: skip
WRONG = (
    Row("gradients are added up", "torch_examples.py:summed", "Trained",
        PART, "refuted"),
    Row("the pipeline's loss is not divided", f"{PIPELINE}:not_divided", "Model",
        "--mesh pp=2", "refuted"),
    Row("the gradient of a bias is not summed", "megatron_layers.py:BiasNotSummed", "Block",
        f"{SEQUENCE} --device-free", "refuted"),
    Row("a bias inside of the sum", "fairscale_layers.py:BiasInTheSum", "Block",
        f"--mesh tp=2 --input {IDS}", "refuted"),
    Row("labels of other rows", "fairscale_layers.py:OtherLabels", "Language",
        f'--mesh tp=2 --input "x=f32[2,3,8]" --input {LABELS}', "refuted"),
    Row("keys that count twice", "llama.py:OtherHeads", "same@1",
        '--mesh tp=2 --input "x=f32[2,3,16]"', "refuted"),
    Row("rows that see later ones", "long_context.py:Ahead", "Attention",
        RING + SUMMED, "refuted"),
    Row("heads change places", "long_context.py:HeadsTurned", "Attention",
        CP.replace("4,8", "4,4") + SUMMED, "refuted"),
    Row("other experts", "experts.py:OtherExperts", "Experts", EP + SUMMED, "refuted"),
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What came of a row."""

    name: str
    verdict: str
    seconds: float
    """Of the processor."""
    where: str
    """The line that is blamed, or why there is no verdict."""
    near: bool | None = None
    """Of a wrong program whose fault has a line: whether that is within three lines of it."""


def check(row: Row) -> Found:
    """Run the command of a row."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-W", "ignore", "-m", "agent", *row.command, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    said = next((e for e in reversed(events) if e["event"] in ("verdict", "error")), {})
    where = said.get("where", "") or said.get("message", done.stderr[-200:])
    verdict = said.get("verdict", "refused")
    return Found(row.name, verdict, round(seconds, 1), where, _near(row, where))


def _near(row: Row, where: str) -> bool | None:
    """Whether a blamed line is within three of the fault; None where no line is one."""
    file = row.command[1].partition(":")[0]
    name = row.target.partition(":")[2]
    lines = (ROOT / file).read_text().splitlines()
    first = next(n for n, line in enumerate(lines, 1) if f" {name}(" in line)
    faults = [n for n, line in enumerate(lines, 1) if "# fault" in line and n > first]
    if row.expected == "proved" or not faults:
        return None
    at = where.partition(" ")[0]
    told, _, number = at.rpartition(":")
    same = Path(told).name == Path(file).name and number.isdigit()
    return same and abs(int(number) - faults[0]) <= 3


def main() -> None:
    """The table, and the results if all rows were run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows whose names begin so; all by default")
    asked = parser.parse_args().names
    rows = [r for r in (*RIGHT, *WRONG) if not asked or any(r.name.startswith(a) for a in asked)]
    found: list[Found] = []
    bad = 0
    for row in rows:
        found.append(check(row))
        one = found[-1]
        wrong = one.verdict != row.expected or one.seconds > LIMIT
        bad += wrong
        mark = "  <-- expected " + row.expected if wrong else ""
        print(
            f"{row.name:45} {one.verdict:8} {one.seconds:5.1f} s  {one.where[:70]}{mark}",
            flush=True,
        )
    faults = [f.near for f in found if f.near is not None]
    print(f"{len(rows) - bad} of {len(rows)} as expected; lines within three of the fault: "
          f"{sum(faults)} of {len(faults)}")  # fmt: skip
    if not asked:
        RESULTS.write_text(json.dumps([asdict(f) for f in found], indent=1) + "\n")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
