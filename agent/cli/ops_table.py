"""The table of ops, read off the registry: for the terminal and for `docs/ops.md`."""

from dataclasses import dataclass
from itertools import groupby

from shardproof.agent.actions.runs import Ops
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome, Run
from shardproof.verifier.kernel.ops import REQUIRED, Op
from shardproof.verifier.ops import REGISTRY, facets

KINDS = {
    "map": "Elementwise",
    "einsum": "Products",
    "reduce": "Reductions",
    "view": "Views and layout",
    "index": "Indexing",
    "create": "Creation",
    "rows": "Rows",
    "composite": "Composites, inlined to the ops above before anything is proved",
    "collective": "Collectives",
    "movement": "Values that change ranks",
    "control": "Control",
}
"""Kind of op to heading, in the order of the table."""


@dataclass(frozen=True)
class Row:
    name: str
    kind: str
    signature: str
    attributes: str
    linear: str
    """Operands in which the op is linear: `{0} {1}` one by one, `{0, 1}` jointly."""
    gradient: str
    meaning: str


def rows() -> list[Row]:
    """Every op, by kind and then by name."""
    order = list(KINDS)
    ops = sorted(REGISTRY.values(), key=lambda op: (order.index(op.kind), op.name))
    return [_row(op) for op in ops]


def _row(op: Op) -> Row:
    attributes = ", ".join(
        name if default is REQUIRED else f"{name}={default}" for name, default in op.attrs.items()
    )
    linear = " ".join("{" + ", ".join(map(str, sorted(group))) + "}" for group in op.linear)
    known = facets(op.name)
    gradient = "vjp" if known.vjp_rule else "expansion" if op.expand else ""
    sentence = " ".join(known.doc.split("\n\n")[0].split())
    return Row(op.name, op.kind, op.signature, attributes, linear, gradient, sentence)


def markdown() -> str:
    """The page `docs/ops.md`."""
    lines = [
        "# Ops",
        "",
        "Read off the registry of ops by `shardproof ops --markdown`;",
        "do not edit.",
        "`linear` lists groups of operands in which the op is linear, jointly within a group, the",
        "others held fixed: only through those does a pending sum pass.",
    ]
    for kind, group in groupby(rows(), key=lambda row: row.kind):
        lines += ["", f"## {KINDS[kind]}", ""]
        lines += [
            "| op | signature | attributes | linear | gradient | |",
            "|---|---|---|---|---|---|",
        ]
        for row in group:
            cells = (
                _code(row.name),
                _code(row.signature),
                _code(row.attributes),
                _code(row.linear),
                row.gradient,
                row.meaning.replace("|", "\\|"),
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def table() -> str:
    """Plain columns for a terminal."""
    wide = [(r.name, r.kind, r.signature, r.attributes) for r in rows()]
    name, kind, signature, _ = (max(map(len, column)) for column in zip(*wide, strict=True))
    return "\n".join(
        f"{a:<{name}}  {b:<{kind}}  {c:<{signature}}  {d}".rstrip() for a, b, c, d in wide
    )


def show(run: Run, asked: Ops) -> Outcome:
    """`shardproof ops`: for a person, as the page, or as an event."""
    text = markdown().removesuffix("\n") if asked.markdown else table()
    if run.in_events:
        run.emit(events.Said(text=text))
    return Outcome(Exit.PROVED, answer=text)
