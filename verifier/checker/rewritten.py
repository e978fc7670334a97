"""What the one-device program of a certificate is rewritten to, as it says."""

from shardproof.verifier.checker.replay import BrokenError
from shardproof.verifier.checker.rules import real
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.text.assemble import shared, well_formed
from shardproof.verifier.text.digest import digest


def _plain(program: Program) -> Program:
    real(program := inline(well_formed(shared(program))))
    return program


def opened(at: Cursor, sequential: Program) -> tuple[Program, tuple[str, ...]]:
    """The one-device program, its cross entropies opened up where the certificate says so, and
    what that assumes of the labels."""
    if "opened" not in at:
        return sequential, ()
    from shardproof.verifier.provers.cross_entropy import FORMS, open_entropy

    for form in FORMS:
        found, labels = open_entropy(sequential, form, unmarked=True)
        if at["opened"].text() == digest(found):
            return _plain(found), labels
    raise BrokenError("the one-device program is opened up otherwise", "opened")


def cut(at: Cursor, sequential: Program) -> Program:
    """The one-device program with those steps of repeated blocks written out that are named."""
    if "peels" not in at:
        return sequential
    from shardproof.verifier.kernel.peeling import Peel, PeelError, peeled

    peels: list[Peel] = []
    for item in at["peels"].items():
        block, kept = _pair(item)
        runs = [(a.integer(), b.integer()) for a, b in map(_pair, kept.items())]
        peels.append(Peel(block.text(), tuple(runs)))
    try:
        return _plain(peeled(sequential, peels)) if peels else sequential
    except PeelError as error:
        raise BrokenError(str(error), "peels") from None


def _pair(at: Cursor) -> tuple[Cursor, Cursor]:
    found = at.items()
    if len(found) != 2:
        raise at.fail("not a pair", "[..., ...]")
    return found[0], found[1]
