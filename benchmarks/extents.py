"""`python -m benchmarks.extents [NAME ...]`: models at their published extents, at full depth.

Each config in `benchmarks/extents/` is planned and proved for `tp=8` (Whisper, whose 20 heads do
not divide by 8, for `tp=4`), not run. Rows are kept as they come, so that a run that was stopped
goes on. `--layers 12` makes every model that deep instead: what more layers cost.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.parallelize import ROOT, Job, measure
from benchmarks.zoo import DEPTH

CONFIGS = ROOT / "benchmarks" / "extents"
RESULTS = ROOT / "benchmarks" / "results" / "extents.jsonl"
TOKENS = {"gpt-neox-20b": 2048, "whisper-large-v3": 448}
MESH = {"whisper-large-v3": "tp=4"}
PICTURES = ("vit-22b",)
SECONDS = 1800
"""For one model, of the clock."""


@dataclass(frozen=True)
class Row:
    """What came of one model."""

    name: str
    layers: int
    mesh: str
    verdict: str
    useful: bool
    processor_s: float
    clock_s: float
    peak_bytes: int
    """Of the largest process."""
    step_s: float
    """Estimated."""
    memory_bytes: int
    """Per rank, estimated."""
    plan: str
    why: str


def row(name: str, layers: int | None) -> Row:
    """Run the command on one config."""
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    deep = [key for key in DEPTH if key in config]
    items = [f"{key}={layers}" for key in deep] if layers else []
    mesh = MESH.get(name, "tp=8")
    seq = () if name in PICTURES else ("--seq", str(TOKENS.get(name, 4096)))
    options = ("--mesh", mesh, "--batch", "1", *seq, "--no-run", "--timeout", str(SECONDS))
    target = f"hf:{config['architectures'][0]}"
    found = measure(Job(name, target, (str(CONFIGS / f"{name}.json"), *items), options))
    return Row(
        name,
        layers or int(config[deep[0]]),
        mesh,
        found.verdict,
        found.useful,
        round(found.processor, 1),
        round(found.clock, 1),
        found.peak_bytes,
        round(found.estimates.get("step_s", 0.0), 4),
        int(found.estimates.get("memory_bytes_after", 0)),
        found.plan,
        found.error,
    )


def table(rows: list[Row]) -> str:
    """Markdown."""
    lines = ["| model | layers | mesh | verdict | useful | processor s | peak GB | step | memory |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        useful = "yes" if r.useful and r.verdict == "proved" else "no"
        cells = [r.name, r.layers, r.mesh, r.verdict, useful, r.processor_s]
        cells += [
            f"{r.peak_bytes / 1e9:.2f}",
            f"{r.step_s:.2f} s",
            f"{r.memory_bytes / 1e9:.0f} GB",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def kept(results: Path) -> list[Row]:
    """Rows of earlier runs."""
    lines = results.read_text().splitlines() if results.exists() else list[str]()
    return [Row(**json.loads(line)) for line in lines]


def main() -> int:
    """0 if every model is proved with a plan that is useful."""
    known = sorted(path.stem for path in CONFIGS.glob("*.json"))
    parser = argparse.ArgumentParser(prog="benchmarks.extents")
    parser.add_argument("names", nargs="*", choices=[*known, []], help="all if none are named")
    parser.add_argument("--layers", type=int, help="instead of the published depth")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = {(r.name, r.layers): r for r in kept(given.results)}
    for name in given.names or known:
        config = json.loads((CONFIGS / f"{name}.json").read_text())
        layers = given.layers or next(config[key] for key in DEPTH if key in config)
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
