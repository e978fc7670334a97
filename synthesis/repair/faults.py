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
    Rule(OnNumbers, localize.attribute),
    Rule(OnNumbers, localize.stands),
    Rule(OnNumbers, localize.unsummed),
    Rule(OnNumbers, localize.lost),
    # what proved edits say
    Rule(Edits, localize.edited),
    # what a training step says, and the model's
    Rule(Looked, step_faults.lacking),
    Rule(Looked, step_faults.rated),
    Rule(Looked, step_faults.shared),
    Rule(Looked, step_faults.early),
    Rule(Looked, step_faults.untouched),
    Rule(Looked, step_faults.given_otherwise),
    Rule(Looked, step_faults.synced),
    Rule(Looked, step_faults.unreduced),
    # what the source says
    Rule(Looked, culprits.lost_result),
    Rule(Looked, culprits.group),
    Rule(Looked, culprits.numbers),
    Rule(Looked, culprits.constants),
    Rule(Looked, culprits.levelled),
    Rule(Looked, culprits.parted),
    Rule(Looked, culprits.called),
    Rule(Looked, culprits.ahead, weak=True),
    Rule(Looked, culprits.back),
    Rule(Looked, culprits.within),
    Rule(Looked, step_faults.behind),
    Rule(Looked, culprits.around),
    # where to look as well
    Rule(Looked, culprits.in_plans, beside=True),
    Rule(Looked, culprits.callers, beside=True),
    Rule(Looked, culprits.inside, beside=True),
    Rule(Looked, culprits.methods, beside=True),
    Rule(Looked, culprits.after, beside=True),
    Rule(Looked, culprits.set_at, beside=True),
)


def blamed(context: OnNumbers | Edits | Looked) -> Fault | None:
    """What is to blame; None where no rule says more than the verdict does. A place where numbers
    go wrong is passed over for a later rule where what its line does is known to be right."""
    passed: Fault | None = None
    for rule, fault in _found(context, beside=False):
        if not rule.weak and (passed is None or fault.why not in culprits.OUTSIDE):
            return fault
        if isinstance(context, Looked) and rule.weak and not context.sound(_at(fault.line)):
            return fault
        passed = passed or fault
    return passed


def _found(context: OnNumbers | Edits | Looked, beside: bool) -> Iterator[tuple[Rule[Any], Fault]]:
    for rule in RULES:
        if isinstance(context, rule.about) and rule.beside == beside:
            yield from ((rule, fault) for fault in rule.find(context))


def beside(looked: Looked) -> list[Fault]:
    """At most three lines to look at other than the place, likeliest first."""
    out = {_at(looked.place): Fault(None, looked.place, "")}
    for _, fault in _found(looked, beside=True):
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
