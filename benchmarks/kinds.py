"""`python -m benchmarks.kinds [NAME ...]`: what becomes of models of 53 kinds, as people write
them.

Each model of `tests/kinds/kinds.toml` on two ranks of tp and of dp; a run that was stopped goes on.
Rows are in `benchmarks/results/kinds.jsonl`, from which a table beside them and
the totals in docs/models.md are written.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

from benchmarks.blocks import DOCS, write
from benchmarks.kept import RESULTS, Kept, counts, go_on, lines, options
from benchmarks.parallelize import ROOT, Job

MANIFEST = ROOT / "tests" / "kinds" / "kinds.toml"
PAGE = RESULTS / "kinds.md"
HEAD = """# Models as people write them

Written by `python -m benchmarks.kinds`; do not edit. The models are in `tests/kinds/models`.

*Proved* is said of the patch, *run* of two processes against one; a plan is *useful* where it
splits at least half of what the mesh could split.

"""


def jobs(meshes: Sequence[str] = ()) -> list[tuple[str, Job]]:
    """(mesh, job), mesh by mesh."""
    manifest = tomllib.loads(MANIFEST.read_text())
    defaults = manifest["defaults"]
    out: list[tuple[str, Job]] = []
    for mesh in meshes or defaults["mesh"]:
        for entry in manifest["job"]:
            name = entry["target"].removeprefix("models/")
            given = [x for item in entry.get("input", ()) for x in ("--input", item)]
            wall = ("--timeout", str(defaults["timeout"]))
            target = str((MANIFEST.parent / entry["target"]).relative_to(ROOT))
            out.append((mesh, Job(name, target, (), ("--mesh", mesh, "--run", *wall, *given))))
    return out


def totals(rows: Sequence[Kept]) -> str:
    """Markdown: how many of each mesh."""
    out = ["| mesh | models | proved | run | useful |", "|---|---|---|---|---|"]
    for mesh in dict.fromkeys(r.mesh for r in rows):
        numbers = counts([r for r in rows if r.mesh == mesh])
        out.append(f"| {mesh} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(out) + "\n"


def page(rows: Sequence[Kept]) -> str:
    """Markdown: the totals, then a line a job."""
    return HEAD + totals(rows) + "\n" + "\n".join(lines(rows)) + "\n"


def main() -> int:
    given = options("benchmarks.kinds").parse_args()
    rows = go_on(given, RESULTS / "kinds.jsonl", jobs(given.mesh or ()))
    if not given.mesh:
        PAGE.write_text(page(rows))
        write(DOCS / "models.md", "kinds", totals(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
