"""`python -m benchmarks.extents [NAME ...]`: models at their published extents, at full depth.

Each config in `benchmarks/extents/` is planned and proved for `tp=8`, not run. Rows are kept as
they come, so that a run that was stopped goes on. `--layers 12` makes every model that deep
instead: what more layers cost. `--page` writes their tables to
`benchmarks/results/extents.md` and totals to docs/models.md.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.blocks import DOCS, write
from benchmarks.parallelize import ROOT, Job, measure
from benchmarks.zoo import DEPTH

CONFIGS = ROOT / "benchmarks" / "extents"
RESULTS = ROOT / "benchmarks" / "results" / "extents.jsonl"
PAGE = RESULTS.with_suffix(".md")
TOKENS = {"gpt-neox-20b": 2048, "whisper-large-v3": 448}
PICTURES = ("vit-22b", "unet")
FILES = {"unet": "UNet"}
"""Models of a file of their own, with the class; their depth is not one number."""
SECONDS = 1800
"""For one model, of the clock."""
HEAD = """# Models at their published extents

Written by `python -m benchmarks.extents --page`; do not edit.

Every layer, one sequence on the mesh shown: 4,096 tokens, GPT-NeoX 2,048, Whisper 30 s of sound and
448, `unet` (Stable Diffusion 1) a latent of 64 x 64. Float32 with Adam; planned, and the patch read
again and proved, not run. Processor: seconds of the command and all that it starts. Memory: of the
largest process. *Useful*: the plan splits at least half of what the mesh could split. Estimates are
of one rank, on H100s: a step, the share of communication in it, memory for weights with gradients
and moments, and for activations.
"""
DEEPER = """
## More layers

The same with 12 layers and with 48: layers of a kind are captured once.

| model | 12 layers | 48 layers | ratio |
|---|---|---|---|
"""
REFUSED = """
## Not proved or not useful

"""


@dataclass(frozen=True)
class Row:
    """What came of one model."""

    name: str
    layers: int
    """0 where the depth is not one number."""
    mesh: str
    verdict: str
    useful: bool
    processor_s: float
    clock_s: float
    peak_bytes: int
    """Of the largest process."""
    plan: str
    why: str
    estimates: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def communication(self) -> float:
        """Share of an estimated step."""
        step = self.estimates.get("step_s", 0.0)
        return self.estimates.get("comm_s", 0.0) / step if step else 0.0

    @property
    def activations(self) -> float:
        """Bytes of a rank, estimated."""
        return self.estimates.get("after_activations", 0.0)

    @property
    def weights(self) -> float:
        """Bytes of a rank for weights, gradients and moments, estimated."""
        return self.estimates.get("memory_bytes_after", 0.0) - self.activations


def config_of(name: str) -> dict[str, Any]:
    return {} if name in FILES else json.loads((CONFIGS / f"{name}.json").read_text())


def row(name: str, layers: int | None) -> Row:
    """Run the command on one config."""
    config = config_of(name)
    deep = [key for key in DEPTH if key in config]
    items = [f"{key}={layers}" for key in deep] if layers else []
    mesh = "tp=8"
    seq = () if name in PICTURES else ("--seq", str(TOKENS.get(name, 4096)))
    options = ("--mesh", mesh, "--batch", "1", *seq, "--no-run", "--timeout", str(SECONDS))
    if name in FILES:
        target, given = f"{CONFIGS / name}.py:{FILES[name]}", ()
    else:
        target, given = f"hf:{config['architectures'][0]}", (str(CONFIGS / f"{name}.json"),)
    found = measure(Job(name, target, (*given, *items), options))
    return Row(
        name,
        depth_of(name, layers),
        mesh,
        found.verdict,
        found.useful,
        round(found.processor, 1),
        round(found.clock, 1),
        found.peak_bytes,
        found.plan,
        found.error,
        {k: float(f"{v:.4g}") for k, v in found.estimates.items()},
    )


def depth_of(name: str, layers: int | None) -> int:
    config = config_of(name)
    return (layers or next(int(config[k]) for k in DEPTH if k in config)) if config else 0


def table(rows: list[Row]) -> str:
    """Markdown."""
    head = ["model", "parameters", "layers", "mesh", "verdict", "useful", "processor s", "peak GB"]
    head += ["step s", "communication", "weights GB", "activations GB"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in rows:
        useful = "yes" if r.useful and r.verdict == "proved" else "no"
        numbers = r.estimates.get("before_parameters", 0.0) / 4e9
        cells: list[object] = [
            r.name,
            f"{numbers:.1f} B",
            r.layers or "",
            r.mesh,
            r.verdict,
            useful,
            r.processor_s,
        ]
        cells += [f"{r.peak_bytes / 1e9:.2f}", f"{r.estimates.get('step_s', 0):.2f}"]
        cells += [f"{r.communication:.0%}", f"{r.weights / 1e9:.0f}", f"{r.activations / 1e9:.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def page(rows: dict[tuple[str, int], Row]) -> str:
    """A table of all, and what more layers cost."""
    whole = [r for r in rows.values() if r.layers == depth_of(r.name, None)]
    text = HEAD + "\n" + table(sorted(whole, key=lambda r: r.name)) + "\n"
    pairs = [(rows[n, 12], rows[n, 48]) for n, d in rows if d == 12 and (n, 48) in rows]
    if pairs:
        text += DEEPER
    for few, many in sorted(pairs, key=lambda pair: pair[0].name):
        ratio = many.processor_s / few.processor_s
        text += f"| {few.name} | {few.processor_s} s | {many.processor_s} s | {ratio:.2f} |\n"
    left = [r for r in whole if r.verdict != "proved" or not r.useful]
    if left:
        text += REFUSED
    text += "".join(f"- {r.name}: {r.why or r.plan}\n" for r in left)
    return text


def totals(rows: dict[tuple[str, int], Row]) -> str:
    """How many models, and what they take at most."""
    whole = [r for r in rows.values() if r.layers == depth_of(r.name, None)]
    good = sum(r.verdict == "proved" and r.useful for r in whole)
    return (
        f"{good} of {len(whole)} models are proved with a useful plan, in at most "
        f"{max(r.processor_s for r in whole):.0f} processor seconds and "
        f"{max(r.peak_bytes for r in whole) / 1e9:.1f} GB of memory each.\n"
    )


def kept(results: Path) -> list[Row]:
    """Rows of earlier runs."""
    lines = results.read_text().splitlines() if results.exists() else list[str]()
    return [Row(**json.loads(line)) for line in lines]


def main() -> int:
    """0 if every model is proved with a plan that is useful."""
    known = sorted([*(path.stem for path in CONFIGS.glob("*.json")), *FILES])
    parser = argparse.ArgumentParser(prog="benchmarks.extents")
    parser.add_argument("names", nargs="*", choices=[*known, []], help="all if none are named")
    parser.add_argument("--layers", type=int, help="instead of the published depth")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="write the pages, measure nothing")
    given = parser.parse_args()
    rows = {(r.name, r.layers): r for r in kept(given.results)}
    if given.page:
        PAGE.write_text(page(rows))
        write(DOCS / "models.md", "extents", totals(rows))
        return 0
    for name in given.names or known:
        layers = depth_of(name, given.layers)
        if (name, layers) in rows:
            continue
        found = rows[name, layers] = row(name, given.layers)
        with given.results.open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        print(f"{name}: {found.verdict} in {found.processor_s} s {found.why}", file=sys.stderr)
    print(table(list(rows.values())))
    return int(any(r.verdict != "proved" or not r.useful for r in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
