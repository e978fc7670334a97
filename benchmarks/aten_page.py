"""docs/aten.md: the core ops of PyTorch, and what capture makes of each, by the registrations.

`python -m benchmarks.aten_page` in the root of the project writes it. `census.csv` holds, of 98
architectures of transformers, how many call an op in their joint graph of forward and backward,
and how often one of their layers does (the median); ops of fewer than 4 are left out.
"""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from shardproof.synthesis.frontends.torch import aten as rules
from shardproof.synthesis.frontends.torch.aten.complex_pairs import COMPLEX
from shardproof.synthesis.frontends.torch.aten.refused import REFUSED
from shardproof.synthesis.frontends.torch.aten.table import TABLE
from shardproof.synthesis.frontends.torch.decompose import decompositions
from shardproof.synthesis.frontends.torch.ranks.draws import DRAWN

PAGE = Path("docs/aten.md")
CENSUS = Path(__file__).parent / "census.csv"
CONSTANT = {"arange", "full", "scalar_tensor"}
"""Made of numbers alone: evaluated at capture."""
HEAD = """# Ops of PyTorch

Read off the rules of capture by `make docs`; do not edit.
An op is *covered* where a rule writes it in [ops of the language](ops.md); *decomposed* where
PyTorch's own decomposition opens it into others; else *refused*, with the line that calls it.
An op that depends on no parameter and no input is evaluated at capture, whatever it is.
"""


def _standing(op: torch._ops.OpOverload) -> tuple[str, str]:
    """covered, decomposed or refused; and why."""
    name = op.__name__
    if name in TABLE or name in COMPLEX:
        return "covered", ""
    base = name.partition(".")[0]
    if base in CONSTANT:
        return "covered", "evaluated at capture"
    if base in DRAWN:
        return "covered", "an input of any value"
    if op in decompositions():
        return "decomposed", ""
    return "refused", REFUSED.get(base, "no rule yet")


def core() -> dict[str, tuple[str, str]]:
    """Every op with the tag `core`, without those that write into an operand."""
    found: dict[str, tuple[str, str]] = {}
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            op = getattr(packet, overload)
            composite = torch._C.DispatchKey.CompositeImplicitAutograd
            if torch.Tag.core not in op.tags or op._schema.is_mutable:
                continue
            opened = op.has_kernel_for_dispatch_key(composite)
            standing = _standing(op)
            if standing[0] == "refused" and opened:
                standing = "decomposed", ""
            found[op.__name__] = standing
    return dict(sorted(found.items()))


def census() -> tuple[float, float]:
    """Calls that are covered or decomposed, and all."""
    names = {*TABLE, *COMPLEX, *(op.__name__ for op in decompositions())}
    known = all_ = 0.0
    for row in csv.DictReader(CENSUS.read_text().splitlines()):
        calls = int(row["architectures"]) * float(row["calls"])
        all_ += calls
        known += calls if not names.isdisjoint((row["op"], f"{row['op']}.default")) else 0
    return known, all_


def page() -> str:
    found = core()
    count = {
        kind: [n for n, (k, _) in found.items() if k == kind]
        for kind in ("covered", "decomposed", "refused")
    }
    known, all_ = census()
    lines = [
        HEAD,
        f"Of the {len(found)} ops of PyTorch {torch.__version__.partition('+')[0]}'s core, "
        f"{len(count['covered'])} are covered, {len(count['decomposed'])} decomposed and "
        f"{len(count['refused'])} refused. Of the calls of a census over 98 architectures of "
        f"transformers (`benchmarks/census.csv`: ops of at least 4), {known / all_:.1%} are "
        "covered or decomposed.",
        "",
        "| op | | why |",
        "|---|---|---|",
        *(f"| `{n.removesuffix('.default')}` | {k} | {w} |" for n, (k, w) in found.items()),
        "",
        f"Beside the core, rules cover {len({*TABLE, *COMPLEX} - set(found))} more overloads.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    assert rules.__path__
    PAGE.write_text(page())
