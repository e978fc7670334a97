"""`shardproof explain`: what a proof says of one value of the ranks, and from what it follows."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardproof.agent.run import outdir
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.verdict.certificates import CERTIFICATE, Files
from shardproof.verifier.checker import Rejected, check
from shardproof.verifier.checker.claims import Named, Row
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.where import show
from shardproof.verifier.text.assemble import shared, well_formed


@dataclass
class _Walk:
    """The claims of one program, or of the body of a repeated block."""

    named: Named
    program: Program
    claims: Mapping[str, Any]
    depth: int
    told: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    def __post_init__(self) -> None:
        self.made = {out: node for node in self.program.nodes for out in node.outputs}

    def lines(self, name: str) -> Iterator[str]:
        """Every claim about a value, with what it rests on, `depth` ops back."""
        for index in range(len(self.claims["values"].get(name, ()))):
            yield from self._claim(name, index, 0)

    def _claim(self, name: str, index: int, deep: int) -> Iterator[str]:
        row = self.named.row(Cursor(self.claims["values"][name][index], f"claims of %{name}"))
        node = self.made.get(name)
        known = (name, index) in self.told
        why = ": see above" if known else _why(row, node)
        yield f"{'  ' * deep}%{name} is {_meaning(row)}{why}"
        self.told.add((name, index))
        if known or deep >= self.depth:
            return
        if row.rule.startswith("joined"):
            for premise in row.premises:
                yield from self._claim(name, premise, deep + 1)
        elif node is not None and node.body is None:
            for value, premise in zip(node.inputs, row.premises, strict=False):
                if premise >= 0:
                    yield from self._claim(value, premise, deep + 1)


def _meaning(row: Row) -> str:
    times = "" if row.factor in (None, 1) else f"{row.factor} times "
    of = "a term that one device does not name" if row.of is None else f"%{row.of} of one device"
    ranks = f", on ranks {show(row.where)}" if row.where else ""
    return f"{times}{of}, laid out as {row.layout}{ranks}"


def _why(row: Row, node: Node | None) -> str:
    if row.rule == "contract" or node is None:
        return ": " + ("by the contract" if row.rule == "contract" else f"by rule {row.rule}")
    place = f"  ({node.source.file}:{node.source.line})" if node.source.file else ""
    written = f"{node.op} {', '.join(f'%{v}' for v in node.inputs)}"
    if row.rule in (node.op, "scan"):
        return f": {written}{place}"
    return f": {written}, by rule {row.rule}{place}"


def _found(
    program: Program, claims: Mapping[str, Any], blocks: Sequence[Any], name: str
) -> tuple[Program, Any] | None:
    """The program, or the body in it, that has claims about a value."""
    if name in claims["values"]:
        return program, claims
    for node in program.nodes:
        inner = claims["bodies"].get(node.outputs[0])
        if node.body is not None and inner is not None:
            found = _found(node.body, blocks[inner["claims"]], blocks, name)
            if found is not None:
                return found
    return None


def explain(run: Run, directory: Path, value: str, depth: int) -> Outcome:
    """The derivation of a value, of a certificate that the checker accepts.

    Raises:
        InputError: no proof stands in the directory, or it has no such value.
    """
    recorded = outdir.manifest(directory)
    if CERTIFICATE not in recorded["files"]:
        raise InputError("there is no certificate in it", where=str(directory))
    problem, certificate = Files.beside(directory).read()
    result = check(certificate, problem)
    if isinstance(result, Rejected):
        raise InputError(f"the certificate is rejected: {result.reason}", where=result.where)
    if "claims" not in certificate:
        raise InputError("its proof compares entries and makes no claims", where=str(directory))
    program, name = inline(well_formed(shared(problem.distributed))), value.removeprefix("%")
    found = _found(program, certificate["claims"], certificate["blocks"], name)
    named = Named.read(Cursor(certificate, "certificate"))
    if found is None:
        near = difflib.get_close_matches(name, list(program.types), 3)
        hint = f"did you mean {', '.join('%' + n for n in near)}?" if near else ""
        raise InputError(f"no claim is about %{name}", where=str(directory), hint=hint)
    answer = "\n".join(_Walk(named, *found, depth).lines(name))
    return Outcome(Exit.PROVED, "accepted", directory=str(directory), answer=answer)
