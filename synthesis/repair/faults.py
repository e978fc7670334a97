"""The fault of a wrong program: the rules that name it, in one table."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from shardproof.synthesis.repair import culprits, localize, step_faults
from shardproof.synthesis.repair.fault import Fault, Rule
from shardproof.synthesis.repair.localize import Edits, OnNumbers
from shardproof.synthesis.repair.looked import Looked
from shardproof.verifier.kernel.program.types import Source
from shardproof.verifier.verdict import Location

MOST = 3
"""Lines that are shown beside the one that is to blame."""
RULES: tuple[Rule[Any], ...] = (
    # what the numbers of both programs say
    Rule(1, OnNumbers, localize.attribute),
    Rule(2, OnNumbers, localize.stands),
    Rule(3, OnNumbers, localize.unsummed),
    Rule(4, OnNumbers, localize.lost),
    # what proved edits say
    Rule(5, Edits, localize.edited),
    # what the source says
    Rule(6, Looked, step_faults.lacking),
    Rule(6, Looked, step_faults.given_otherwise),
    Rule(6, Looked, step_faults.synced),
    Rule(6, Looked, culprits.lost_result),
    Rule(6, Looked, culprits.group),
    Rule(7, Looked, culprits.numbers),
    Rule(8, Looked, culprits.constants),
    Rule(9, Looked, culprits.levelled),
    Rule(10, Looked, culprits.parted),
    Rule(11, Looked, culprits.called),
    Rule(12, Looked, culprits.ahead),
    Rule(13, Looked, culprits.back),
    Rule(14, Looked, culprits.within),
    Rule(15, Looked, culprits.around),
    # where to look as well
    Rule(16, Looked, culprits.in_plans, beside=True),
    Rule(17, Looked, culprits.callers, beside=True),
    Rule(18, Looked, culprits.inside, beside=True),
    Rule(19, Looked, culprits.methods, beside=True),
    Rule(20, Looked, culprits.after, beside=True),
    Rule(21, Looked, culprits.set_at, beside=True),
)


def _found(context: OnNumbers | Edits | Looked, beside: bool) -> Iterator[Fault]:
    for rule in sorted(RULES, key=lambda rule: rule.rank):
        if isinstance(context, rule.about) and rule.beside == beside:
            yield from rule.find(context)


def blamed(context: OnNumbers | Edits | Looked) -> Fault | None:
    """What is to blame; None where no rule says more than the verdict does."""
    return next(_found(context, beside=False), None)


def beside(looked: Looked) -> list[Fault]:
    """At most three lines to look at other than the place, likeliest first."""
    out = {_at(looked.place): Fault(None, looked.place, "")}
    for fault in _found(looked, beside=True):
        out.setdefault(_at(fault.line), fault)
    return list(out.values())[1 : MOST + 1]


def _at(source: Source) -> tuple[str, int]:
    return source.file, source.line


def moved(place: Location, fault: Fault) -> Location:
    """The place of a verdict at what is to blame: it says what was found there before."""
    if fault.op is not None:
        node, was = fault.op, f"{place.text}: {place.reason}"
        text = f"%{node.outputs[0]} = {node.op} {', '.join(f'%{v}' for v in node.inputs)}"
        return replace(
            place, op=node.op, text=text, reason=fault.why, source=fault.line, operands=(was,)
        )
    (file, line), text = _at(fault.line), fault.line.text
    if (file, line) == _at(place.source):
        return place
    at = replace(place.source, file=file, line=line, text=text, calls=())
    was = f"{place.source}: {place.text}: {place.reason}"
    return replace(place, source=at, reason=fault.why, operands=(was, *place.operands))
