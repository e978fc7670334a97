"""What a single step of a certificate comes to, for whoever asks about it apart from programs."""

from collections.abc import Sequence

from shardproof.verifier.checker.claims import Claim, Row, fits, need
from shardproof.verifier.checker.joins import join
from shardproof.verifier.checker.moves import move
from shardproof.verifier.checker.parts import KINDS, blocks, part
from shardproof.verifier.checker.rules import derive
from shardproof.verifier.checker.step import Step
from shardproof.verifier.kernel.instance import JOINED, Instance
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.terms import Ref, Terms


def conclude(instance: Instance, refs: Sequence[Ref], terms: Terms) -> Ref:
    """What the checker takes the result for, of operands that are these terms.

    Raises NotShownError.
    """
    mesh, made = instance.mesh, instance.made
    given = tuple(
        Claim(ref, p.layout, p.where) for ref, p in zip(refs, instance.given, strict=True)
    )
    row = Row(None, None, made.layout, (), instance.rule, made.where)
    fits(made.layout, mesh, made.layout.local_shape)
    if instance.op == JOINED:
        if any(kind in KINDS for kind in instance.rule.split(":")[1:2]):
            everywhere = frozenset(mesh.names)
            return part(row, given, "", everywhere, False, terms, mesh)
        return join(row, given, terms, mesh)
    attrs = lookup(instance.op).with_defaults(dict(instance.attrs))
    if lookup(instance.op).kind == "movement":
        need(len(given) == 1, "a movement rests on one claim")
        return move(instance.op, attrs, row, given[0], terms, mesh)
    if instance.rule.startswith("blocks:"):
        return blocks(instance.op, attrs, given, made.layout, terms)
    return derive(Step(instance.op, attrs, instance.given, made.layout, mesh)).of(refs, terms)
