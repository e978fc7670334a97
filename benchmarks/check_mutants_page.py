"""`python -m benchmarks.check_mutants_page`: what faults in sources show.

Tables go to `benchmarks/results/check_mutants.md`, totals to docs/check.md. They are counted from
the committed rows of `check_mutants` and of `check_mutants_typed`.
"""

# pyright: basic

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from benchmarks.blocks import DOCS, write
from benchmarks.check_mutants import BASES, RESULTS, Row

TABLE = RESULTS.with_suffix(".md")
TYPED = RESULTS.with_name("check_mutants_typed.json")
HEAD = """# Faults in the source of parallel modules

Written by `python -m benchmarks.check_mutants_page`; do not edit.

`make check-mutants` puts single faults into the source of right modules: the examples, modules of
the tests, hand-written ones, DTensor plans, `fully_shard`, DDP, messages, pipelines, a plan of
transformers, a hand-written load. Whether a variant is wrong is found by running it on gloo in
float64: forward, all gradients, every value of integer inputs, and collectives that complete no
earlier than their wait. Rows are in `check_mutants.jsonl`.

"""
TYPES = """
`spmd_types` 0.3.1 is given types as its documentation asks: for parameters, inputs, outputs, and a
typing rule for each autograd function (`python -m benchmarks.check_mutants_typed --package DIR`).
The comparison is fair for faults in `forward`. It is not fair for faults inside an autograd
function, whose typing rule is trusted, nor for code after the backward, factors, and which rows a
rank holds. `spmd_types` takes no DTensors and no schedules; it needs no reference model and no
shapes, and costs one forward.
"""


def text(rows: Sequence[Row], typed: dict[str, dict[str, str]]) -> str:
    """What the rows show, in Markdown."""
    right = [r for r in rows if r.truth == "right"]
    wrong = [r for r in rows if r.truth == "wrong"]
    broken = [r for r in rows if r.truth == "broken"]
    refuted = [r for r in wrong if r.verdict == "refuted"]
    bases = {r.base for r in rows}
    blamed = [r for r in refuted if r.blamed]
    near = sum(0 <= r.near <= 3 for r in blamed)
    shown = sum(0 <= r.beside <= 3 for r in blamed)
    repairable = [r for r in refuted if r.kind != "wrong load"]
    lines = [
        f"{len(rows)} faults in {len(bases)} of {len({b.label for b in BASES})} modules have run.",
        "",
        "| on gloo | proved | refuted | unknown | refused |",
        "|---|---|---|---|---|",
        *(
            f"| {word} | {' | '.join(str(_count(found, v)) for v in VERDICTS)} |"
            for word, found in (
                ("right: computes the same", right),
                ("wrong", wrong),
                ("does not run, or waits for ever", broken),
            )
        ),
        "",
        f"- Of the wrong ones {_share(len(refuted), len(wrong))} are refuted.",
        f"- The blamed line is within three lines of the fault in {_share(near, len(blamed))}, one "
        f"of the lines that are shown (at most three more) in {_share(shown, len(blamed))}.",
        f"- A change of source that is proved is found for {_repaired(repairable)} of those that "
        "are refuted, loads aside, within ten changes tried.",
        "",
        "| fault | wrong | refuted | repaired |",
        "|---|---|---|---|",
    ]
    for kind, _ in Counter(r.kind for r in wrong).most_common():
        of = [r for r in wrong if r.kind == kind]
        found = [r for r in of if r.verdict == "refuted"]
        lines.append(f"| {kind} | {len(of)} | {len(found)} | {sum(bool(r.repaired) for r in of)} |")
    if typed:
        lines += ["", *_beside(rows, typed)]
    return "\n".join(lines) + "\n"


def totals(rows: Sequence[Row]) -> str:
    """The counts that the page gives."""
    wrong = [r for r in rows if r.truth == "wrong"]
    right = [r for r in rows if r.truth == "right"]
    refuted = [r for r in wrong if r.verdict == "refuted"]
    blamed = [r for r in refuted if r.blamed]
    repairable = [r for r in refuted if r.kind != "wrong load"]
    counted = {
        "right variants proved": _share(_count(right, "proved"), len(right)),
        "wrong variants proved": _share(_count(wrong, "proved"), len(wrong)),
        "wrong variants refuted": _share(len(refuted), len(wrong)),
        "first line within three lines of the fault": _share(
            sum(0 <= r.near <= 3 for r in blamed), len(blamed)
        ),
        "one of at most four lines within three": _share(
            sum(0 <= r.beside <= 3 for r in blamed), len(blamed)
        ),
        "repaired and proved within ten changes (loads aside)": _repaired(repairable),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in counted.items())]) + "\n"


VERDICTS = ("proved", "refuted", "unknown", "refused")


def _count(rows: Sequence[Row], verdict: str) -> int:
    return sum(r.verdict == verdict for r in rows)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / max(whole, 1):.0f} %)"


def _repaired(rows: Sequence[Row]) -> str:
    return _share(sum(bool(r.repaired) for r in rows), len(rows))


def _beside(rows: Sequence[Row], typed: dict[str, dict[str, str]]) -> list[str]:
    """The two side by side, on the modules that the types admit."""
    out = ["| `spmd_types` | wrong ones of modules that it admits | found | by `check` |"]
    out += ["|---|---|---|---|"]
    for mode in ("strict", "permissive"):
        both = [r for r in rows if r.truth == "wrong" and typed.get(r.key, {}).get(mode) in KNOWN]
        found = sum(typed[r.key][mode] == "error" for r in both)
        ours = sum(r.verdict == "refuted" for r in both)
        out.append(f"| {mode} | {len(both)} | {found} | {ours} |")
    false = [r for r in rows if r.truth == "right" and typed.get(r.key, {}).get("strict") in KNOWN]
    wrongly = sum(typed[r.key]["strict"] == "error" for r in false)
    told = f"its strict mode reports {wrongly} of {len(false)}" if false else "none was typed"
    return [*out, "", f"Of right ones, {told}."]


KNOWN = ("error", "nothing found")


def main() -> int:
    rows = [Row(**json.loads(x)) for x in RESULTS.read_text().splitlines()]
    typed = json.loads(TYPED.read_text()) if TYPED.is_file() else {}
    TABLE.write_text(HEAD + text(rows, typed) + TYPES)
    write(DOCS / "check.md", "mutants", totals(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
