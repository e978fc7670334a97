"""`python -m benchmarks.clones CLONES [NAMES]`: parallel code of other people, drawn before any of
it was tried, and the verdicts of `check`, at first and now.

CLONES is a folder with a clone of each repository; lightly is a package of the environment. Rows
are kept in `benchmarks/results/clones.md`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import shardproof

HERE = Path(__file__).parent
TABLE = HERE.parents[0] / "results" / "clones.md"
FOLDERS = {"picotron": ".", "nanotron": "src", "lightly": "."}
FOLDERS |= dict.fromkeys(("nemo-rl", "areal", "colossalai", "verl"), ".")
FOLDERS |= {"open_clip": "src", **dict.fromkeys(("vicreg", "moco-v3", "detectron2", "dinov2"), ".")}
DATA = {"inputs": ["x=f32[8,8]", "y=f32[8,8]"], "input_layout": ["x=S(0)@dp", "y=S(0)@dp"]}
PAIRS = {"inputs": ["a=f32[8,6]", "b=f32[8,6]"], "input_layout": ["a=S(0)@dp", "b=S(0)@dp"]}
ROWS = {"inputs": ["x=f32[4,2,8]"], "device_free": True}
IDS = {"inputs": ["ids=i64[4,2]<16", "labels=i64[4,2]<16"], "device_free": True}
SEQUENCE = {"input_layout": ["x=S(0)@tp"], "output_layout": ["*=S(0)@tp"]}
QKV = [f"{name}=S(2)@cp" for name in "qkv"]
LOGITS = {"inputs": ["logits=f32[8,16]"], "input_layout": ["logits=S(1)@tp"]}
LABELS = {**LOGITS, "inputs": ["logits=f32[8,16]", "labels=i64[8]<16"]}
IGNORED = {**LOGITS, "inputs": ["logits=f32[8,16]", "labels=i64[8]<16|-100"]}
DEEP = {"input_layout": ["logits=S(2)@tp"]}
TOKENS = {**DEEP, "inputs": ["logits=f32[2,4,16]", "target=i64[2,4]<16"]}
HEADER = """# Parallel code of clones

Written by `python -m benchmarks.clones CLONES`; do not edit. All rows were chosen before any was
tried. *True*: what runs on gloo in float64 say, or for picotron's ring and nanotron's layers their
own tests; *at first*: before anything was mended for these rows.

[found.md](found.md) says what is wrong as published.

| code | true | at first | now |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    name: str
    true: str
    first: str
    module: str
    against: str
    mesh: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def file(self) -> Path:
        return HERE / f"{self.name.partition(':')[0].replace('-', '_')}_cases.py"


def _scatter(**config: str) -> dict[str, Any]:
    given = [f"{k}={v}" for k, v in {"mode": "REDUCE_SCATTER", **config}.items()]
    return {**ROWS, **SEQUENCE, "config": given}


def _loss(kind: str, true: str) -> Row:
    options = {**PAIRS, "step": "step", "config": [f"kind={kind}"]}
    return Row(f"lightly: {kind}", true, "refused", "many", "one", "dp=2", options)


def _logprob(name: str, first: str, *options: str, **inputs: Any) -> Row:
    against = "Chosen" if "indices" in name else "Logprob"
    given = {**TOKENS, "config": list(options), **inputs}
    return Row(f"nemo-rl: {name}", "right", first, "SplitLogprob", against, "tp=2", given)


def _split(name: str, first: str, kind: str, inputs: list[str], *places: str) -> Row:
    given = {"inputs": inputs, "input_layout": places}
    mesh = f"{places[0].partition('@')[2]}=2"
    return Row(f"nemo-rl: {name}", "right", first, f"Split{kind}", kind, mesh, given)


def _sequence(name: str, true: str, first: str, function: str) -> Row:
    inputs = {"inputs": ["x=f32[2,8,8]", "y=f32[2,8,8]"], "step": f"{function}=step"}
    return Row(f"verl: {name}", true, first, "many", "one", "sp=2", inputs)


def _features(name: str, true: str, first: str, mesh: str = "dp=2", **config: str) -> Row:
    options = {**PAIRS, "step": "step", "config": [f"{k}={v}" for k, v in config.items()]}
    if name.startswith("dinov2"):
        options |= {"step": "step=one_step"}
    if name.endswith("of patches"):
        options |= {"inputs": ["a=f32[8,3,6]", "b=f32[8,3,6]"]}
    return Row(name, true, first, "many", "one", mesh, options)


def _clip(kind: str, how: str, true: str, first: str, mesh: str = "dp=2") -> Row:
    name = (
        f"open_clip: {kind}, {how or 'own features alone'}{'' if mesh == 'dp=2' else ', ' + mesh}"
    )
    return _features(name, true, first, mesh, kind=kind, how=how)


def _norm(mode: str, true: str, first: str) -> Row:
    options = {"inputs": ["x=f32[4,3,6,6]"], "config": [f"mode={mode}"]}
    options |= {"input_layout": ["x=S(0)@dp"], "output_layout": ["*=S(0)@dp"]}
    name = f"detectron2: batch norm over ranks{', by rows' if mode else ''}"
    return Row(name, true, first, "many", "one", "dp=2", options)


def _ring(tokens: int) -> Row:
    inputs = [f"{name}=f32[1,1,{tokens},2]" for name in "qkv"]
    options = {"inputs": inputs, "input_layout": QKV, "output_layout": ["*=S(2)@cp"]}
    name = f"picotron: ring attention, {tokens} tokens"
    options |= {"device_free": True}
    return Row(name, "right", "proved", "Ring", "Attention", "cp=2", options)


DRAWN = (
    Row("picotron: tensor parallel Llama", "right", "proved", "tensor_parallel", "llama", "tp=2",
        {"inputs": ["input_ids=i64[2,8]<32"]}),
    Row("picotron: DataParallelNaive", "wrong", "refused", "naive", "mlp", "dp=2",
        {**DATA, "step": "step"}),
    Row("picotron: DataParallelBucket", "right", "refused", "bucket", "mlp", "dp=2",
        {**DATA, "step": "step"}),
    Row("picotron: DataParallelBucket, micro-batches", "right", "refused", "bucket", "mlp", "dp=2",
        {**DATA, "step": "accumulating=step"}),
    _ring(2),
    _ring(4),
    Row("nanotron: all-reduce", "right", "proved", "Split", "MLP", "tp=2", ROWS),
    Row("nanotron: all-reduce, no bias", "right", "proved", "Split", "MLP", "tp=2",
        {**ROWS, "config": ["bias=false"]}),
    Row("nanotron: all-reduce, overlapped", "right", "proved", "Split", "MLP", "tp=2",
        {**ROWS, "config": ["overlaps=true", "bias=false"]}),
    Row("nanotron: scatter", "right", "proved", "Split", "MLP", "tp=2", _scatter()),
    Row("nanotron: scatter, no bias", "right", "proved", "Split", "MLP", "tp=2",
        _scatter(bias="false")),
    Row("nanotron: scatter, kept rows", "right", "proved", "Split", "MLP", "tp=2",
        _scatter(bias="false", again="false")),
    Row("nanotron: scatter, overlapped", "right", "proved", "Split", "MLP", "tp=2",
        _scatter(bias="false", overlaps="true")),
    Row("nanotron: scatter, overlapped, kept rows", "right", "proved", "Split", "MLP", "tp=2",
        _scatter(bias="false", overlaps="true", again="false")),
    Row("nanotron: embedding and cross entropy", "right", "unknown", "SplitTokens", "Tokens",
        "tp=2", IDS),
    Row("nanotron: embedding and cross entropy, scatter", "right", "unknown", "SplitTokens",
        "Tokens", "tp=2", {**IDS, "config": ["mode=REDUCE_SCATTER"]}),
    Row("nanotron: cross entropy with z-loss", "wrong", "refuted", "SplitTokensWithZ",
        "TokensWithZ", "tp=2", IDS),
    _loss("NTXentLoss", "right"),
    _loss("VICRegLoss", "right"),
    _loss("DCLLoss", "right"),
    _loss("TiCoLoss", "right"),
    _loss("BarlowTwinsLoss", "wrong"),
    _loss("DCLWLoss", "wrong"),
    _logprob("log-probabilities", "refused"),
    _logprob("log-probabilities of rows", "unknown",
             inputs=["logits=f32[8,16]", "target=i64[8]<16"], input_layout=LABELS["input_layout"]),
    _logprob("log-probabilities in chunks", "unknown", "kind=ChunkedDistributedLogprob",
             "extra=[2]"),
    _logprob("log-probabilities at indices", "unknown", "kind=ChunkedDistributedGatherLogprob",
             "extra=[2]", inputs=["logits=f32[2,4,16]", "target=i64[2,4,3]<16"]),
    Row("nemo-rl: log-probabilities, sampling", "right", "unknown", "SplitSampling", "Logprob",
        "tp=2", TOKENS),
    _split("cross entropy of a teacher", "proved", "Cross",
           ["student=f32[2,4,16]", "teacher=f32[2,4,16]"], "student=S(2)@tp", "teacher=S(2)@tp"),
    Row("nemo-rl: log-softmax", "right", "proved", "SplitSoft", "Soft", "tp=2",
        {**DEEP, "inputs": ["logits=f32[2,4,16]"], "output_layout": ["*=S(2)@tp"]}),
    _split("columns", "unknown", "Columns", ["logits=f32[2,4,16]", "columns=i64[3]<16"],
           "logits=S(2)@tp"),
    _split("argmax", "unknown", "Argmax", ["logits=f32[2,4,16]"], "logits=S(2)@tp"),
    _split("mean over a sequence", "proved", "Mean", ["x=f32[2,8]", "mask=f32[2,8]"], "x=S(1)@cp",
           "mask=S(1)@cp"),
    Row("areal: log-probabilities", "right", "unknown", "SplitLogprob", "Logprob", "tp=2", LABELS),
    Row("areal: log-probabilities and entropy", "right", "refused", "SplitBoth", "Both", "tp=2",
        LABELS),
    Row("colossalai: cross entropy, mean", "wrong", "refused", "SplitLoss", "Loss", "tp=2",
        IGNORED),
    Row("colossalai: cross entropy, sum", "right", "refused", "SplitLoss", "Loss", "tp=2",
        {**IGNORED, "config": ["mode=sum"]}),
    Row("colossalai: log-probabilities", "right", "refused", "SplitLogprob", "Logprob", "tp=2",
        LABELS),
    Row("colossalai: column and row", "right", "refused", "SplitMLP", "MLP", "tp=2",
        {"inputs": ["x=f32[2,4,8]"]}),
    Row("colossalai: column and row of a sequence", "right", "refused", "Rows", "MLP", "tp=2",
        {"inputs": ["x=f32[2,4,8]"], "input_layout": ["x=S(1)@tp"],
         "output_layout": ["*=S(1)@tp"]}),
    Row("verl: entropy", "right", "proved", "SplitEntropy", "Entropy", "tp=2", LOGITS),
    _sequence("Ulysses", "right", "proved", "split"),
    _sequence("Ulysses, group passed", "wrong", "refuted", "passed"),
    _clip("ClipLoss", "gather_with_grad local_loss", "right", "proved"),
    _clip("ClipLoss", "gather_with_grad", "right", "unknown"),
    _clip("ClipLoss", "local_loss", "wrong", "refuted"),
    _clip("ClipLoss", "", "wrong", "refuted"),
    _clip("SigLipLoss", "bidir", "right", "unknown"),
    _clip("SigLipLoss", "bidir", "right", "unknown", mesh="dp=4"),
    _clip("SigLipLoss", "shift", "right", "unknown", mesh="dp=4"),
    _clip("SigLipLoss", "reduce", "right", "unknown"),
    _clip("SigLipLoss", "gather", "right", "unknown"),
    _features("vicreg: VICReg", "right", "unknown"),
    _features("moco-v3: contrastive loss", "right", "refused"),
    _norm("", "wrong", "refuted"),
    _norm("N", "wrong", "refuted"),
    _features("dinov2: sinkhorn", "right", "proved", how="sinkhorn"),
    _features("dinov2: center", "right", "refused", how="center"),
    _features("dinov2: center of patches", "right", "refused", how="patches"),
)  # fmt: skip


def verdict(row: Row) -> str:
    module, against = (f"{row.file}:{name}" for name in (row.module, row.against))
    try:
        options = {**row.options, "run": False, "repair_seconds": 0}
        found = shardproof.check(module, against, row.mesh, **options)
    except shardproof.ShardproofError as problem:
        print(f"  {problem}", file=sys.stderr)
        return "refused"
    words = {"Proof": "proved", "Counterexample": "refuted"}
    return words.get(type(found).__name__, "unknown")


def main(argv: Sequence[str] | None = None) -> int:
    """A row for each; 1 where a wrong one is proved, or a right one refuted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", type=Path)
    parser.add_argument("names", nargs="*", help="rows whose names begin so; all by default")
    given = parser.parse_args(argv)
    places = [str((given.clones / n / at).resolve()) for n, at in FOLDERS.items()]
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")])
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    kept = {line.split(" | ")[0][2:]: line for line in lines if line.startswith("| ")}
    bad = False
    for row in DRAWN:
        if given.names and not row.name.startswith(tuple(given.names)):
            continue
        found = verdict(row)
        bad |= (row.true, found) in (("wrong", "proved"), ("right", "refuted"))
        cells = (row.name, row.true, row.first, found)
        kept[row.name] = f"| {' | '.join(cells)} |"
        print(kept[row.name], flush=True)
    rows = [kept[row.name] for row in DRAWN if row.name in kept]
    TABLE.write_text(HEADER + "\n".join(rows) + "\n")
    return int(bad)


if __name__ == "__main__":
    raise SystemExit(main())
