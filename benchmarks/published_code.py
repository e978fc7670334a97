"""`python -m benchmarks.published_code [NAME ...]`: parallel code that people publish, checked.

Packages are used as they are, from an environment of their own (`make check-published`); examples
of PyTorch are written anew. Each row is one command of `shardproof check`: a right program with its
verdict, or a wrong twin with the line of its fault. Rows of `--own` need no package. Ends in 1
where a verdict is another than the expected one, or a command takes more than 20 s of the
processor.
What was run is kept in `benchmarks/results`, row by row; `--page` writes the table to
`benchmarks/results/published_code.md` and the totals to docs/models.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.blocks import DOCS, write

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "benchmarks/published"
RESULTS = ROOT / "benchmarks" / "results" / "published_code.json"
TABLE = RESULTS.with_suffix(".md")
PACKAGED = ("fairscale_layers.py", "llama.py", "long_context.py", "megatron_layers.py", "titan.py")
"""Files of programs that need a package."""
NEAR = 3
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
    fault: str = ""
    """Of a wrong program, a part of the one line of its file that is at fault; "" where what is
    wrong is a line that lacks."""

    @property
    def of_library(self) -> bool:
        """Whether it is a class of transformers."""
        return self.target.startswith("hf:")

    @property
    def file(self) -> str:
        """Of the program, from the root; of a class of transformers this one."""
        if self.of_library:
            return "benchmarks/published_code.py"
        file = self.target.partition(":")[0]
        return file if file.startswith("examples/") else f"{FOLDER}/{file}"

    @property
    def own(self) -> bool:
        """Whether it needs no package."""
        return Path(self.file).name not in PACKAGED

    def line(self) -> int:
        """The number of the line at fault, from 1.

        Raises:
            ValueError: no line, or several have the part.
        """
        lines = (ROOT / self.file).read_text().splitlines()
        (found,) = (n for n, line in enumerate(lines, 1) if self.fault in line)
        return found

    @property
    def command(self) -> list[str]:
        if self.of_library:
            return ["check", self.target, *shlex.split(self.options)]
        target = f"{self.file}:{self.target.partition(':')[2]}"
        against = self.against if self.against == "same@1" else f"{self.file}:{self.against}"
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
BY_HAND = f"{PART} --mode train"
SERVED = (
    '--mesh tp=2 --input "x=f32[3,16]" --no-gradients --op serving.all_reduce=all_reduce@tp '
    "--layout 'gate_up.weight=[2 2@tp 8][16]' --layout 'qkv.weight=[3 2@tp 8][16]' --mode train"
)
FILLED = '--mesh tp=2 --input "x=f32[4,8]" --output-layout "*=S(1)@tp" --no-gradients --mode train'
PIPELINE = "examples/check/pipeline.py"
UNMASKED = RING.replace("2,2", "4,2") + " --config causal=false"
GROUPED = SERVED.replace("[3 2@tp 8]", "[2@tp 8 + 2@tp 4 + 2@tp 4]") + " --config groups=2"
BOTH_WAYS = (
    '--mesh row=2,col=2 --input "x=f32[4,8]" --input-layout "x=S(1)@col" '
    '--output-layout "*=S(1)@col" --layout "up.weight=S(0)@row,S(1)@col" '
    '--layout "down.weight=S(1)@row,S(0)@col" --layout "up.bias=S(0)@row" '
    '--layout "down.bias=S(0)@col"'
)
PICKED = '--mesh tp=2 --input "x=f32[3,8]" --input "label=i64[3]<16"'
CHANNELS = '--mesh tp=2 --input "x=f32[4,4]" --no-grad x'
TITAN = '--input "tokens=i64[4,8]"'
BATCH = f"--mesh dp=2,tp=2 {TITAN} --input-layout tokens=S(0)@dp --output-layout output=S(0)@dp"
CACHE = '--mesh tp=2 --input "x=f32[2,3,8]" --no-gradients'
FEW = EP.replace("4,8", "4,4")
OWN_NUMBERS = '--mesh ep=2 --input "x=f32[4,4]" --param "local_experts.#.*=experts.{2*ep+#}.*"'
TOWERS = '--mesh tp=2 --input "x=f32[4,3,2]" --output-layout "*=S(0)@tp" --no-grad x --mode train'
QWEN = (
    "--config num_hidden_layers=1 --config hidden_size=16 --config intermediate_size=32 "
    "--config num_attention_heads=4 --config num_key_value_heads=2 --config head_dim=4 "
    "--config vocab_size=24 --mesh tp=2 --batch 2 --seq 4"
)

RIGHT = (
    Row("pytorch, tensor parallel", "torch_examples.py:tensor_parallel", "Toy",
        '--mesh tp=2 --input "x=f32[4,8]"'),
    Row("pytorch, sequence parallel", "torch_examples.py:sequence_parallel", "Toy", ROWS),
    Row("pytorch, FSDP and tensor parallel", "torch_examples.py:split_and_sharded", "Small",
        f"--mesh dp=2,tp=2 {LOSS}"),
    Row("fully_shard in bfloat16", "torch_examples.py:sharded", "Trained", PART),
    Row(
        "fully_shard in bfloat16, a transformer block",
        "torch_examples.py:block_sharded",
        "Small",
        f"--mesh dp=2 {LOSS}",
    ),
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
    Row("torchtitan, tensor parallel", "titan.py:tensor_parallel", "Llama",
        f"--mesh tp=2 {TITAN}"),
    Row("torchtitan, FSDP and tensor parallel", "titan.py:split_and_sharded", "Llama", BATCH),
    Row("experts by all_to_all", "experts.py:SplitExperts", "Experts", EP + SUMMED),
    Row("gradients averaged one by one", "by_hand.py:Averaged", "MLP",
        f"{BY_HAND} --after-backward averaged"),
    Row("gradients averaged in a bucket", "by_hand.py:Averaged", "MLP",
        f"{BY_HAND} --after-backward in_a_bucket"),
    Row("weights gathered by hand (ZeRO-3)", "by_hand.py:Sharded", "MLP", BY_HAND),
    Row("a weight filled at construction", "by_hand.py:Filled", "Plain", FILLED),
    Row("merged layers of serving, an op of its own", "by_hand.py:Served", "Block", SERVED),
    Row("merged layers of serving, grouped heads", "by_hand.py:Served", "Block", GROUPED),
    Row("transformers, Qwen3 by its plan", "hf:Qwen3ForCausalLM", "", QWEN),
    Row("a ring by hand, messages while it computes", "rings.py:Ring", "Attention", RING + SUMMED),
    Row("a ring by hand, without a mask", "rings.py:Ring", "Attention", UNMASKED + SUMMED),
    Row("Ulysses by hand", "rings.py:Ulysses", "Attention", CP.replace("4,8", "4,4") + SUMMED),
    Row("two sums in flight, of one buffer", "spellings.py:InFlight", "MLP",
        '--mesh tp=2 --input "x=f32[4,8]"'),
    Row("picked by row and column", "spellings.py:SplitScored", "Scored", PICKED),
    Row("weights split both ways", "spellings.py:RowsAndColumns", "MLP", BOTH_WAYS),
    Row("statistics of a batch norm", "states.py:SplitNormed", "Normed", CHANNELS),
    Row("a cache of keys and values", "states.py:SplitCached", "Cached", CACHE),
    Row("experts that drop tokens", "capacity.py:SplitDropping", "Dropping", FEW + SUMMED),
    Row("experts with numbers of their own", "capacity.py:SplitMixed", "Mixed",
        OWN_NUMBERS + SUMMED),
    Row("an all_to_all of unequal pieces", "uneven.py:SplitTowers", "Towers", TOWERS + SUMMED),
)  # fmt: skip
WRONG = (
    Row("gradients are added up", "torch_examples.py:summed", "Trained",
        PART, "refuted", "set_gradient_divide_factor"),
    Row("the pipeline's loss is not divided", f"{PIPELINE}:not_divided", "Model",
        "--mesh pp=2", "refuted", "scale_grads=False"),
    Row("the gradient of a bias is not summed", "megatron_layers.py:BiasNotSummed", "Block",
        f"{SEQUENCE} --device-free", "refuted"),
    Row("a bias inside of the sum", "fairscale_layers.py:BiasInTheSum", "Block",
        f"--mesh tp=2 --input {IDS}", "refuted",
        "linear(h, self.down.weight, self.down.bias)"),
    Row("labels of other rows", "fairscale_layers.py:OtherLabels", "Language",
        f'--mesh tp=2 --input "x=f32[2,3,8]" --input {LABELS}', "refuted",
        "labels.roll(1, 0)"),
    Row("keys that count twice", "llama.py:OtherHeads", "same@1",
        '--mesh tp=2 --input "x=f32[2,3,16]"', "refuted", "else 2 * super()"),
    Row("rows that see later ones", "long_context.py:Ahead", "Attention",
        RING + SUMMED, "refuted", "if step <= comm.rank or ahead"),
    Row("heads change places", "long_context.py:HeadsTurned", "Attention",
        CP.replace("4,8", "4,4") + SUMMED, "refuted", "attend(q, k, v).flip(2)"),
    Row("a sum that is scaled too", "titan.py:scaled", "Llama", f"--mesh tp=2 {TITAN}",
        "refuted", "y * mesh"),
    Row("other experts", "experts.py:OtherExperts", "Experts", EP + SUMMED, "refuted",
        "computed(x).flip(0)"),
    Row("averages that are sums", "by_hand.py:Averaged", "MLP",
        f"{BY_HAND} --after-backward added_up", "refuted", "# never divided"),
    Row("a bucket whose sum is lost", "by_hand.py:Averaged", "MLP",
        f"{BY_HAND} --after-backward in_an_old_bucket", "refuted", "# the sum is lost"),
    Row("scattered gradients that are sums", "by_hand.py:ShardedSum", "MLP",
        BY_HAND, "refuted", "return out / ctx.group.size() if"),
    Row("a weight that counts twice", "by_hand.py:FilledTwice", "Plain",
        FILLED, "refuted", "# counted twice"),
    Row("a layer that is not summed", "by_hand.py:ServedUnsummed", "Block",
        SERVED, "refuted", "# a part of the sum"),
    Row("gate and up change places", "by_hand.py:ServedTurned", "Block",
        SERVED, "refuted", "# the other way round"),
    Row("parts in another order", "by_hand.py:Served", "Block",
        GROUPED.replace("8 + 2@tp 4 + 2@tp 4", "4 + 2@tp 4 + 2@tp 8"), "refuted"),
    Row("gradients of norms are not summed", "hf:Qwen3ForCausalLM", "",
        f"{QWEN} --tp-plan benchmarks/published/no_sum_of_norms.json", "refuted"),
    Row("keys meet values of other rows", "rings.py:OtherRows", "Attention",
        UNMASKED + SUMMED, "refuted", "v.flip(2)"),
    Row("heads come back in another order", "rings.py:HeadsBack", "Attention",
        CP.replace("4,8", "4,4") + SUMMED, "refuted", "# the other way round"),
    Row("half of the rows are summed", "spellings.py:OneInFlight", "MLP",
        '--mesh tp=2 --input "x=f32[4,8]"', "refuted", "if both"),
    Row("the first class is left out", "spellings.py:FirstLeftOut", "Scored",
        PICKED, "refuted", "below = 1"),
    Row("sums along the other dim", "spellings.py:OtherWay", "MLP",
        BOTH_WAYS, "refuted", "# sums of other parts"),
    Row("statistics that move slower", "states.py:Slower", "Normed",
        CHANNELS, "refuted", "# of another model"),
    Row("kept in another place", "states.py:AnotherPlace", "Cached",
        CACHE, "refuted", "# one row before"),
    Row("experts of a rank change places", "capacity.py:SeatsTurned", "Dropping",
        FEW + SUMMED, "refuted", "# the other way round"),
    Row("weights of other experts", "capacity.py:OtherWeights", "Mixed",
        OWN_NUMBERS + SUMMED, "refuted", "# on each rank"),
    Row("unequal pieces of other rows", "uneven.py:RowsTurned", "Towers",
        TOWERS + SUMMED, "refuted", "# the other way round"),
)  # fmt: skip
ALL = (*RIGHT, *WRONG)


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
    command = [sys.executable, "-W", "ignore", "-m", "shardproof", *row.command, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = (line for line in done.stdout.splitlines() if line.startswith("{"))
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    ends = [e for e in events if e["event"] in ("verdict", "error")]
    said = ends[-1] if ends else {}
    where = said.get("where", "") or said.get("message", done.stderr[-200:])
    verdict = said.get("verdict", "refused")
    return Found(row.name, verdict, round(seconds, 1), where, _near(row, where))


def _near(row: Row, where: str) -> bool | None:
    """Whether a blamed line is within three of the fault; None where no line is at fault."""
    if not row.fault:
        return None
    told, _, number = where.partition(" ")[0].rpartition(":")
    same = Path(told).name == Path(row.file).name and number.isdigit()
    return same and abs(int(number) - row.line()) <= NEAR


def kept() -> dict[str, Found]:
    """What was found when each row was run last, by its name."""
    return (
        {f["name"]: Found(**f) for f in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    )


def keep(found: Sequence[Found]) -> None:
    """Put rows that were run beside those of before."""
    held = kept() | {f.name: f for f in found}
    rows = [asdict(held[r.name]) for r in ALL if r.name in held]
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


def table() -> str:
    """The rows that were run, in Markdown."""
    held = kept()
    out = ["| program | verdict | s |", "|---|---|---|"]
    for row in ALL:
        found = held.get(row.name)
        if found is not None:
            verdict = found.verdict
            if found.near is not None:
                verdict += ", at the fault" if found.near else ", elsewhere"
            out.append(f"| {row.name} | {verdict} | {found.seconds} |")
    return "\n".join(out)


def commands() -> str:
    """The commands of the rows that were run."""
    held = kept()
    return "\n".join(shlex.join(["shardproof", *r.command]) for r in ALL if r.name in held)


def page() -> str:
    """Every row with its verdict, and the commands."""
    return f"{HEAD}{table()}\n\n## Commands\n\n```console\n{commands()}\n```\n"


HEAD = """# Published parallel code

Written by `python -m benchmarks.published_code --page`; do not edit. Seconds are processor seconds.
*At the fault*: the line shown is within three lines of it.

"""


def totals() -> str:
    """How many programs got which verdict, and how often the line shown is the one at fault."""
    found = list(kept().values())
    verdicts = Counter(f.verdict for f in found)
    near = [f.near for f in found if f.near is not None]
    return (
        f"{len(found)} programs: {verdicts['proved']} proved, {verdicts['refuted']} refuted, each "
        f"as expected, in at most {max(f.seconds for f in found):.0f} processor seconds. "
        f"The line shown is within three lines of the fault in {sum(near)} of {len(near)} wrong "
        "programs.\n"
    )


def main() -> None:
    """The table, and the results if all rows were run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows whose names begin so; all by default")
    parser.add_argument("--own", action="store_true", help="those that need no package")
    parser.add_argument("--page", action="store_true", help="run nothing, write the pages")
    asked = parser.parse_args()
    if asked.page:
        TABLE.write_text(page())
        write(DOCS / "models.md", "published code", totals())
        return
    rows = [r for r in ALL if not asked.names or any(r.name.startswith(a) for a in asked.names)]
    rows = [r for r in rows if r.own or not asked.own]
    found: list[Found] = []
    bad = 0
    for row in rows:
        found.append(check(row))
        keep(found)
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
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
