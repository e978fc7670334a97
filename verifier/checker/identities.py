"""Certificates whose entries are equal as polynomials, of which some take named axioms.

The checker runs both programs on a bank of atoms (`domains/polynomials.py`) and compares every
entry of every output. Where two are not one polynomial the certificate says which axioms take their
difference to 0, and in which order: they are applied, and nothing is looked for. An atom may be
named if it has a value wherever the outputs of one device have theirs, and so must all atoms that
ranks need.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from shardproof.verifier.checker.certificate import (
    ELEMENTWISE,
    VERSION,
    Prepared,
    header,
    seal,
    sealed,
)
from shardproof.verifier.checker.claims import NotShownError, need
from shardproof.verifier.checker.entries import in_fields
from shardproof.verifier.checker.replay import Accepted, Rejected, Result
from shardproof.verifier.domains.axioms import DECIDED, Gap, parts
from shardproof.verifier.domains.base import Array, is_index
from shardproof.verifier.domains.monomials import difference
from shardproof.verifier.domains.polynomials import Polynomials
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.program import live
from shardproof.verifier.provers.scalars.answers import Undecided
from shardproof.verifier.provers.scalars.cases import MAX_CASES, MAX_ELEMENTS, cases, scope_of
from shardproof.verifier.provers.scalars.outputs import all_ranks, pairs
from shardproof.verifier.refute.evaluate import elements, evaluate

ENGINE = "polynomials, at these extents"
MASKED = "an entry masked with -10^29 or less has weight 0: all else is small beside a mask"
LONGEST = 2_000_000
"""Characters that all identities of a certificate may have."""
Json = dict[str, Any]


Steps = Sequence[tuple[str, int]]
"""Axioms by name, each with the place of the atom that it is about."""
Find = Callable[[Gap, str], "Steps | None"]
"""The steps that close a gap of this text, None where there are none."""


def closes(gap: Gap, steps: Steps) -> bool:
    """Whether the steps take a difference to 0. Raises NotShownError, UndefinedError."""
    terms = gap.terms
    for name, place in steps:
        need(0 <= place < len(gap.atoms), "no such atom")
        atom = gap.atoms[place]
        need(name in DECIDED or gap.bank.atoms[atom][0] == name, f"the atom is no {name}")
        need(gap.allowed(name, atom), f"{name} may have no value")
        before, terms = terms, gap.applied(terms, name, atom)
        need(terms != before, f"{name} changes nothing")
    return not terms


@dataclass
class Comparison:
    """What is told of all entries that must be equal, as they are compared."""

    masks: bool = False
    """Whether large negative constants are taken for minus infinity."""
    masked: bool = False
    """Whether that was used."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Entries by output."""
    case: Mapping[str, Array] | None = None
    """The values of integer inputs that are tried."""


def compared(given: Prepared, told: Comparison) -> Iterator[Gap]:
    """Gaps of all entries that must be equal, over all values of the integer inputs.

    Raises NotShownError, UndefinedError.
    """
    p = given.problem
    one, many = live(p.sequential), live(p.distributed)
    size = elements(one) + elements(many, many.mesh.size)
    need(size <= MAX_ELEMENTS, f"the programs hold {size} numbers")
    tried = cases(one, many, {}, MAX_CASES)
    if isinstance(tried, Undecided):
        raise NotShownError(tried.reason)
    counts = told.counts = {output_key(o): 0 for o in one.outputs}
    for told.case in tried:
        case, bank = told.case, Polynomials(told.masks)
        wholes = {i.name: bank.symbols(i.name, i.type.shape) for i in one.inputs} | case
        bank.least = True
        values = evaluate(one, wholes, bank)
        bank.least = False
        ranks = all_ranks(one, many, p.contract, wholes, bank)
        outputs = [o for o in one.outputs if o.role != "grad"] or [*one.outputs]
        forward, every = (_needed(values, some) for some in (outputs, one.outputs))
        for out in one.outputs:
            defined, key = every if out.role == "grad" else forward, output_key(out)
            for where, want, have in pairs(key, p.contract, many, values[out.value], ranks, bank):
                need(want.shape == have.shape, f"{key} {where} has shape {have.shape}")
                if is_index(want) and is_index(have):
                    need(bool((want == have).all()), f"{key} {where} is another integer")
                    continue
                both = (bank.lift(side).reshape(-1) for side in (want, have))
                for a, b in zip(*both, strict=True):
                    counts[key] += 1
                    need(b.needs <= defined, f"{key} {where} may have no value")
                    for terms in parts(bank, difference(a.terms, b.terms)):
                        yield Gap(bank, terms, defined)
        told.masked |= bank.masked


def _needed(values: Mapping[str, Any], outputs: Sequence[Any]) -> frozenset[int]:
    arrays = (values[o.value] for o in outputs if not is_index(values[o.value]))
    return frozenset[int]().union(*(e.needs for a in arrays for e in a.reshape(-1)))


def document(given: Prepared, find: Find, told: Comparison) -> Json:
    """The certificate of programs whose gaps all have steps.

    Raises:
        NotShownError: a gap that has none, or that may have no value.
        UndefinedError: an op on which polynomials say nothing.
    """
    p, known, size = given.problem, dict[str, tuple[Json, Steps]](), 0
    for gap in compared(given, told):
        said = gap.said()
        text = json.dumps(said)
        if text not in known:
            steps = find(gap, text)
            if steps is None:
                raise NotShownError("an identity without steps")
            need(closes(gap, steps), "the steps leave a rest")
            known[text] = {**said, "steps": [[*step] for step in steps]}, steps
            need((size := size + len(text)) <= LONGEST, "the identities are too long")
        named = ((axiom, gap.atoms[place]) for axiom, place in known[text][1])
        need(all(starmap(gap.allowed, named)), "what an axiom is about may have no value")
    one, many = live(p.sequential), live(p.distributed)
    tried = cases(one, many, {}, MAX_CASES)
    return {
        "version": VERSION,
        "kind": ELEMENTWISE,
        "engine": ENGINE,
        **header(given),
        "extents": {i.name: [i.type.dtype, list(i.type.shape)] for i in p.sequential.inputs},
        "indices": {},
        "cases": 0 if isinstance(tried, Undecided) else len(tried),
        "scope": list(scope_of(one, many, {}, masked=told.masked)),
        "assumptions": [MASKED] if told.masked else [],
        "outputs": dict(sorted(told.counts.items())),
        "identities": [said for said, _ in known.values()],
    }


def certify(given: Prepared, find: Find, masks: bool = False) -> Json | Undecided:
    """The certificate, or why polynomials do not show that the programs are equal."""
    told = Comparison(masks)
    try:
        return sealed(document(given, find, told))
    except (ValueError, TypeError) as error:
        return Undecided(str(error), told.case)


def again(
    certificate: Mapping[str, Any],
    given: Prepared,
    assumed: tuple[str, ...],
    rests: tuple[str, ...],
) -> Result:
    """What the certificate shows: its steps are applied, and no others are looked for."""
    try:
        told = _told(certificate.get("identities"))
        run = Comparison(masks=bool(certificate.get("assumptions")))
        made = document(given, lambda _, text: told.get(text), run)
        expected = {**made, "order": certificate.get("order"), "seal": seal(certificate)}
        for key in sorted({*expected, *certificate}):
            need(
                key in expected and certificate.get(key) == expected[key],
                f"{key}: expected {expected.get(key, 'no such entry')}, got {certificate.get(key)}",
            )
        engine = f"{ENGINE}: {_count(made)}{in_fields(given)}"
    except MalformedError as error:
        return Rejected(error.what, error.where)
    except (TypeError, ValueError) as error:
        return Rejected(str(error), "the comparison")
    assumed, scope = (*assumed, *made["assumptions"]), tuple(made["scope"])
    return Accepted(len(made["outputs"]), scope, assumed, engine=engine, rests=rests)


def _told(listed: object) -> dict[str, Steps]:
    """Steps by what they close. Raises NotShownError, MalformedError."""
    found: dict[str, Steps] = {}
    for item in Cursor(listed, "identities").items():
        item.only("atoms", "difference", "steps")
        steps: list[tuple[str, int]] = []
        for step in item["steps"].items():
            pair = step.items()
            need(len(pair) == 2, "a step is an axiom and a place")
            steps.append((pair[0].text(), pair[1].integer()))
        found[json.dumps({k: item[k].value for k in ("atoms", "difference")})] = steps
    return found


def _count(made: Json) -> str:
    steps = sum(len(identity["steps"]) for identity in made["identities"])
    by = f", {len(made['identities'])} identities by {steps} axioms" if steps else ""
    return f"{sum(made['outputs'].values())} entries{by}"
