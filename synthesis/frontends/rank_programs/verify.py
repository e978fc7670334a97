"""Whether the programs of all ranks compute what one device computes."""

from collections.abc import Mapping
from dataclasses import replace

from shardproof.synthesis.frontends.rank_programs.findings import Finding, Ingested
from shardproof.synthesis.frontends.rank_programs.read import Progress
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import Contract, ContractError
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import IN_ORDER, Program
from shardproof.verifier.kernel.program.types import Source
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Location, Proof, Trace, Unknown, Verdict

BUFFERED = "a send does not wait for its recv"


def judged(
    sequential: Program,
    read: Ingested,
    contract: Contract | None,
    consts: Mapping[str, Array] | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """The verdict on programs that were read. Without a contract, on whether they run at all.

    Ranks that wait for ever are a counterexample. A rank that deviates is part of the program,
    exactly as it stands: it may be proved all the same; where it is not, the verdict points at it.
    Input that is no set of rank programs is Unknown, with the first finding as its reason.
    """
    for kind in ("malformed", "mismatch", "unsupported"):
        found = read.of_kind(kind)
        if found and kind == "mismatch":
            first = next(iter(read.of_kind("deviates")), found[0])
            message = f"{first}; {_short(found[0])}" if first is not found[0] else _short(first)
            trace = Trace("communication of ranks", message, tuple(map(str, found)))
            return Counterexample(read.mesh, trace, _location(first), stats=read.stats)
        first = next(iter(read.of_kind("deviates")), None)
        if found and kind == "unsupported" and first is not None:
            others = "" if contract is None else _others(sequential, read, contract, consts)
            said = f"{first}; with it, {found[0].message}; {_said(others)}"
            return Unknown(said, _location(first), stats=read.stats)
        if found:
            return Unknown(str(found[0]), _location(found[0]), stats=read.stats)
    if read.program is None or contract is None:
        return Unknown("no program of all ranks was found", stats=read.stats)
    deviant = read.of_kind("deviates")
    try:
        verdict = verify(
            Problem(sequential, read.program, contract, consts=consts or {}), progress=progress
        )
    except (IRError, ContractError) as error:
        return Unknown(f"the programs do not fit: {error}", stats=read.stats)
    verdict = replace(verdict, stats={**read.stats, **verdict.stats})
    match verdict:
        case Proof(assumptions=assumed):
            if any(n.op == "send" and n.timing == IN_ORDER for n in read.program.nodes):
                assumed = (*assumed, BUFFERED)
            return replace(verdict, assumptions=assumed)
        case Counterexample(location=place) if deviant:
            return replace(verdict, location=_named(place, deviant[0]))
        case Unknown(location=place, reason=reason) if deviant:
            others = _others(sequential, read, contract, consts)
            named = _named(place, deviant[0])
            said = f"{deviant[0]}; with it, {reason}; {_said(others)}"
            return replace(verdict, reason=said, location=named)
        case _:
            return verdict


def _others(
    sequential: Program, read: Ingested, contract: Contract, consts: Mapping[str, Array] | None
) -> Verdict | str:
    """The verdict if the ranks that deviate ran what the ranks around them run."""
    if read.majority is None:
        return "no program was found for the other ranks alone"
    try:
        return verify(Problem(sequential, read.majority, contract, consts=consts or {}))
    except (IRError, ContractError) as error:
        return f"without it, the programs do not fit: {error}"


def _said(others: Verdict | str) -> str:
    match others:
        case Proof():
            return "if it ran what the ranks around it run, all ranks would be proved"
        case Counterexample():
            return "without it, the programs are wrong too"
        case Unknown():
            return "without it, nothing is proved either"
        case _:
            return others


def _short(found: Finding) -> str:
    return f"rank {found.rank}: {found.message}" if found.rank is not None else found.message


def _location(found: Finding) -> Location | None:
    file, _, line = found.where.rpartition(":")
    if not file:
        return None
    at = Source(file, int(line)) if line.isdecimal() else Source()
    operands = tuple(
        f"{word} {text}"
        for word, text in (("expected", found.expected), ("got", found.got))
        if text
    )
    return Location("", found.got.strip("`") or found.message, str(found), at, operands)


def _named(place: Location | None, found: Finding) -> Location | None:
    """The place of a rank that deviates; the op where relations break follows."""
    first = _location(found)
    if first is None or place is None:
        return first or place
    breaks = f"relations break at {place.text}: {place.reason}"
    return replace(first, op=place.op, operands=(*first.operands, breaks))
