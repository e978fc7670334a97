"""What a model may name: ops, edits, tactics, styles and checks, read off their registries."""

from fractions import Fraction
from typing import cast

from shardproof.synthesis.repair.edits import KINDS
from shardproof.verifier.kernel.ops import REQUIRED, Op
from shardproof.verifier.ops import REGISTRY, facets

Entry = dict[str, str]
ONE_DEVICE = frozenset({"map", "einsum", "reduce", "view", "index", "create", "rows", "composite"})
INSERTABLE = frozenset({"collective", "movement", "view", "map", "index"})
STYLES: dict[str, str] = {
    "replicate": "whole on every rank",
    "column": "the output dim of the weight is split; the result is split too",
    "row": "the input dim of the weight is split; the result is a pending sum",
    "fused_column": "as column, part by part, for several weights fused in one",
    "vocab": "the rows of an embedding are split; the result is a pending sum",
    "channels": "each channel is for itself, and every rank has some",
    "gathered": "as column; the result is gathered, whole on every rank",
    "recurrent": "the hidden units of an LSTM or GRU are split; the state is gathered at each step",
    "experts": "the hidden layer of every expert is split; the result is a pending sum",
}
STREAMS: dict[str, str] = {
    "R": "whole on every rank of the mesh dim",
    "S(1)": "split over the sequence: sequence parallelism",
}


def one_device_ops() -> list[Entry]:
    """Ops of one-device programs: nothing that communicates, no repeated blocks."""
    return [_entry(op) for op in _sorted(ONE_DEVICE)]


def insertable_ops() -> list[Entry]:
    """Ops that an edit may insert: those of one operand and one result."""
    return [_entry(op) for op in _sorted(INSERTABLE) if _unary(op)]


def _sorted(kinds: frozenset[str]) -> list[Op]:
    return sorted((op for op in REGISTRY.values() if op.kind in kinds), key=lambda op: op.name)


def _unary(op: Op) -> bool:
    left, _, right = op.signature.partition("->")
    return "," not in left and "," not in right and not left.strip().startswith("*")


def _entry(op: Op) -> Entry:
    attrs = ", ".join(
        name if default is REQUIRED else f"{name}={_shown(default)}"
        for name, default in op.attrs.items()
    )
    meaning = " ".join(facets(op.name).doc.split("\n\n")[0].split())
    return {"name": op.name, "signature": op.signature, "attrs": attrs, "meaning": meaning}


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return str(list(cast("tuple[object, ...]", default)))
    return str(float(default)) if isinstance(default, Fraction) else str(default)


def edits() -> list[Entry]:
    """The edits of a repair."""
    return [
        {
            "name": kind.name,
            "takes": ", ".join(("value", *kind.fields)),
            "meaning": " ".join(kind.says.split()),
        }
        for kind in KINDS.values()
    ]


def tactics() -> list[Entry]:
    from shardproof.synthesis.planner.tactics import TACTICS

    return [
        {"name": name, "meaning": " ".join((rule.__doc__ or "").split())}
        for name, rule in sorted(TACTICS.items())
    ]


def of_proposals() -> dict[str, list[str]]:
    """The words of a proposal, by field."""
    return {
        "Proposal.tactic": [tactic["name"] for tactic in tactics()],
        "Proposal.stream": list(STREAMS),
        "Placement.style": list(STYLES),
    }


def styles() -> list[Entry]:
    return [{"name": name, "meaning": meaning} for name, meaning in STYLES.items()]


def streams() -> list[Entry]:
    return [{"name": name, "meaning": meaning} for name, meaning in STREAMS.items()]


def checks() -> list[Entry]:
    """The checks of what ranks do in time."""
    from shardproof.verifier.order.checks import CHECKS

    return [{"name": check.name, "means": check.means} for check in CHECKS]
