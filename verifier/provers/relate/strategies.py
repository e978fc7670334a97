"""Further ways to relate values, for programs in which the plain rules do not reach.

A part of a pending sum is a value of its own on one coordinate: an *addend*, of which nothing is
known but that all of them add up. A piece is a slice of the whole there. What all ranks hold is a
share of a multiple. Cuts and joins along a split dim act inside each block. And a term that has the
key of a value of the one-device program is that value (`verifier/provers/canonical`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Mesh, mesh_dims
from shardproof.verifier.kernel.program.where import Where, common, ranks_where
from shardproof.verifier.ops.classes import CUTS
from shardproof.verifier.provers.canonical.rearranged import view
from shardproof.verifier.provers.placement.movement import leading, without
from shardproof.verifier.provers.relate.facts import Fact, Related
from shardproof.verifier.provers.relate.propagate_back import Step, Telling
from shardproof.verifier.provers.relate.recognition import known_as
from shardproof.verifier.provers.relate.relayout import asked, homes, reread
from shardproof.verifier.provers.relate.rules import Rules
from shardproof.verifier.provers.sequential import Sequential
from shardproof.verifier.terms import Ref, Terms

MAX_COORDINATES = 16
"""Along mesh dims with more coordinates no parts are told apart."""
MAX_CUTS = 32


def addend(
    terms: Terms,
    value: str,
    whole: Ref,
    layout: Layout,
    where: Where,
    name: str,
    at: int,
    n: int,
    positive: bool,
) -> Ref:
    """What one coordinate holds of a value that waits for a fold over `name`.

    Each is a value of its own; of a sum, the last is what the others leave of the whole. None is
    negative where the value is `positive` on every rank.
    """

    def single(k: int) -> Ref:
        key = (value, name, k, layout, where, whole.coef, positive)
        return terms.intern("addend", [Ref(Fraction(1), whole.id)], key, terms.shape(whole))

    if at < n - 1 or layout.fold(name) != "sum":
        return single(at)
    rest = [(Fraction(-1), single(k)) for k in range(n - 1)]
    return terms.combine([(Fraction(1), whole), *rest])


def split_facts(
    terms: Terms,
    value: str,
    facts: Sequence[Fact | None],
    alike: frozenset[str],
    positive: bool,
    mesh: Mesh,
    name: str,
    coordinates: Sequence[int],
) -> list[Fact]:
    """What the facts of a value say of single coordinates along a mesh dim, where that is new."""
    known = {(f.ref, f.layout, f.where) for f in facts if f is not None}
    told = {dict(f.where).get(name) for f in facts if f is not None}
    out: list[Fact] = []
    for index, fact in enumerate(facts):
        if fact is None or name in dict(fact.where):
            continue
        for at in coordinates:
            if (at,) in told:
                continue
            where = ranks_where(mesh, {**dict(fact.where), name: (at,)})
            found: tuple[str, Ref, Layout] | None = None
            dim = leading(fact.layout, name)
            if fact.layout.fold(name) and _determined(fact, alike, mesh, name):
                told_of = terms, value, fact.ref, fact.layout, fact.where
                ref = addend(*told_of, name, at, mesh[name], positive)
                rest = fact.layout.with_partial(p for p in fact.layout.partial if p[0] != name)
                found = "addend", ref, rest
            elif dim is not None:
                extent = fact.layout.global_shape[dim] // mesh[name]
                cut = {"dim": dim, "start": at * extent, "stop": (at + 1) * extent, "step": 1}
                ref = terms.apply("slice", [fact.ref], cut, ["f32"])
                found = "piece", ref, without(fact.layout, name)
            if found is None or set(dict(where)) & found[2].pending:
                continue
            kind, ref, layout = found
            if (ref, layout, where) not in known:
                known.add((ref, layout, where))
                out.append(Fact(ref, layout, (index,), f"joined:{kind}:{name}", where))
    return out


def _determined(fact: Fact, alike: frozenset[str], mesh: Mesh, name: str) -> bool:
    """Whether an addend is one value: along other mesh dims the ranks hold pieces of it, or the
    same numbers."""
    limited = dict(fact.where)
    return all(
        other == name
        or size == 1
        or other in fact.layout.mentioned
        or other in alike
        or len(limited.get(other, range(size))) == 1
        for other, size in mesh.dims
    )


def shares(facts: list[Fact], mesh: Mesh, name: str) -> list[Fact]:
    """What all ranks along a mesh dim hold alike, as a share of as many times the value."""
    out: list[Fact] = []
    for index, fact in enumerate(facts):
        layout = fact.layout
        if name in layout.mentioned or name in dict(fact.where) or not fact.ref.coef:
            continue
        if all(fold == "sum" for _, fold in layout.partial):
            pending = layout.with_partial((*layout.partial, (name, "sum")))
            ref = Ref(fact.ref.coef * mesh[name], fact.ref.id)
            out.append(Fact(ref, pending, (index,), f"joined:share:{name}", fact.where))
    return out


def share(out: Related, rules: Rules, node: Node) -> bool:
    """Read what all ranks hold alike as shares, where other operands wait for a sum.

    Where the rules do not share, it is only noted that there are such operands.
    """
    held = [f for v in node.inputs for f in out.facts[v]]
    names = {n for f in held for n, fold in f.layout.partial if fold == "sum"}
    more = False
    for name in sorted(names):
        for value in dict.fromkeys(node.inputs):
            facts = out.facts[value]
            seen = {(f.ref, f.layout, f.where) for f in facts}
            found = shares(facts, rules.mesh, name)
            fresh = [f for f in found if (f.ref, f.layout, f.where) not in seen]
            facts += fresh if rules.sharing else ()
            more = more or bool(fresh)
    rules.shared = rules.shared or more
    return rules.sharing and more and lookup(node.op).kind != "movement"


def in_blocks(
    terms: Terms, node: Node, refs: Sequence[Ref], layouts: Sequence[Layout]
) -> tuple[Ref, Layout] | None:
    """A cut or join along a dim that mesh dims split outermost: it acts inside each block."""
    attrs = lookup(node.op).with_defaults(node.attrs)
    dim, first = attrs.get("dim"), layouts[0]
    whole = all(isinstance(v, int) for v in attrs.values())
    if node.op not in CUTS or not whole or not isinstance(dim, int):
        return None
    outer = [a for a in first.dims[dim] if a.mesh_dim is not None]
    count = math.prod(a.size for a in outer)
    opened: list[Ref] = []
    for ref, layout in zip(refs, layouts, strict=True):
        along = layout.dims[dim]
        inner = [a for a in along if a.mesh_dim is None]
        same = Layout(first.dims, layout.partial).with_dim(dim, along)
        if list(along) != [*outer, *inner] or len(inner) > 1 or same != layout:
            return None
        if layout.partial != first.partial or any(fold != "sum" for _, fold in layout.partial):
            return None
        shape = layout.global_shape
        opened.append(terms.reshape(ref, (*shape[:dim], count, *_inside(shape, dim, count))))
    moved = {**attrs, "dim": dim + 1}
    made = terms.apply(node.op, opened, moved, ["f32"] * len(opened))
    shape = terms.shape(made)
    merged = (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])
    kept = normal([*outer, Atom(shape[dim + 1])])
    return terms.reshape(made, merged), first.with_dim(dim, kept)


def _inside(shape: tuple[int, ...], dim: int, count: int) -> tuple[int, ...]:
    return (shape[dim] // count, *shape[dim + 1 :])


def wanted_splits(
    node: Node, operands: list[list[Fact]], region: Where, mesh: Mesh
) -> list[tuple[str, tuple[int, ...]]]:
    """Mesh dims and coordinates along which an op needs to know what single ranks hold."""
    out: dict[str, set[int]] = {}
    attrs = lookup(node.op).with_defaults(node.attrs)
    kind = lookup(node.op).kind
    held = [f for facts in operands for f in facts]
    if kind in ("collective", "movement") and "mesh_dim" in attrs:
        for name in mesh_dims(attrs["mesh_dim"]):
            turns = node.op in ("all_gather", "all_to_all", "ring_shift")
            if turns and any(name in f.layout.pending for f in held):
                out.setdefault(name, set()).update(range(mesh[name]))
            for key in ("src", "index"):
                if node.op in ("send", "broadcast", "scatter") and key in attrs:
                    out.setdefault(name, set()).add(attrs[key])
    for name, chosen in region:
        if any(name in f.layout.mentioned for f in held):
            out.setdefault(name, set()).update(chosen)
    for fact in held:
        for name, chosen in fact.where:
            if len(chosen) == 1:
                out.setdefault(name, set()).update(chosen)
    return [
        (name, tuple(sorted(found))) for name, found in out.items() if mesh[name] <= MAX_COORDINATES
    ]


def plainest(facts: list[Fact]) -> list[Fact]:
    """The facts, without those that say of one coordinate by pieces what others say plainly."""

    def pieces(fact: Fact) -> bool:
        return any(len(at) == 1 and name in fact.layout.mentioned for name, at in fact.where)

    told = {f.where for f in facts if f.where and not pieces(f)}
    return [f for f in facts if f.where not in told or not pieces(f)]


def recognised(sequential: Sequential, facts: list[Fact]) -> list[Fact]:
    """The facts, about values of the one-device program where their terms have keys of such."""
    out: list[Fact] = []
    for fact in facts:
        ref = known_as(sequential, fact.ref)
        made = Fact(ref, fact.layout, fact.premises, fact.rule, fact.where)
        out.append(fact if ref == fact.ref else made)
    return out


@dataclass
class Wide:
    """The further ways, along one walk."""

    sequential: Sequential
    mesh: Mesh
    alike: Mapping[str, frozenset[str]]
    positive: frozenset[str]
    out: Related
    program: Program
    step: Step
    pieces: bool

    def __post_init__(self) -> None:
        self.terms = self.sequential.terms
        given = self.program, self.out, self.step
        self.telling = Telling(*given, lambda v, name: self._split(v, name, False))

    def split(self, node: Node, region: Where) -> None:
        """Tell operands apart by coordinate, where the op needs that."""
        operands = [self.out.facts[v] for v in node.inputs]
        for name, chosen in wanted_splits(node, operands, region, self.mesh):
            for value in dict.fromkeys(node.inputs):
                facts = self.out.facts[value]
                about = self.alike[value], value in self.positive
                if any(name in f.layout.pending for f in facts):
                    self.telling.back(value, name)
                facts += split_facts(self.terms, value, facts, *about, self.mesh, name, chosen)
            if node.op in ("all_gather", "all_to_all"):
                self._stack(node, name)

    def _stack(self, node: Node, name: str) -> None:
        """What single coordinates hold of a value that is to be gathered, one after the other."""
        attrs = lookup(node.op).with_defaults(node.attrs)
        dim = attrs["dim" if node.op == "all_gather" else "concat_dim"]
        assert isinstance(dim, int)
        facts = self.out.facts[node.inputs[0]]
        parts: dict[tuple[Where, Layout], dict[int, int]] = {}
        for index, fact in enumerate(facts):
            chosen = dict(fact.where).get(name, ())
            piece = fact.rule.startswith("joined:piece") or name in fact.layout.mentioned
            if len(chosen) == 1 and not piece:
                rest = tuple(item for item in fact.where if item[0] != name)
                parts.setdefault((rest, fact.layout), {}).setdefault(chosen[0], index)
        for (where, layout), found in parts.items():
            if len(found) == self.mesh[name]:
                picks = tuple(found[k] for k in range(self.mesh[name]))
                refs = [facts[i].ref for i in picks]
                ref = self.terms.apply("concat", refs, {"dim": dim}, ["f32"] * len(refs))
                split = layout.with_dim(dim, (Atom(len(refs), name), *layout.dims[dim]))
                made = Fact(ref, split, picks, f"joined:concat:{name}:{dim}", where)
                if all((f.ref, f.layout, f.where) != (ref, split, where) for f in facts):
                    facts.append(made)

    def whole(self, facts: list[Fact]) -> list[Fact]:
        """The facts, and what parts of single coordinates are together, one after the other, where
        that has the key of a value of the one-device program."""
        groups: dict[tuple[str, Where, Layout], dict[int, int]] = {}
        for index, fact in enumerate(facts):
            for name, chosen in fact.where:
                if len(chosen) == 1 and name not in fact.layout.mentioned:
                    rest = tuple(item for item in fact.where if item[0] != name)
                    group = groups.setdefault((name, rest, fact.layout), {})
                    group.setdefault(chosen[0], index)
        out = list(facts)
        seen = {(f.ref, f.layout, f.where) for f in facts}
        for (name, rest, layout), found in groups.items():
            picks = tuple(found.get(k, -1) for k in range(self.mesh[name]))
            for dim in range(len(layout.dims)) if -1 not in picks else ():
                refs = [facts[i].ref for i in picks]
                made = self.terms.apply("concat", refs, {"dim": dim}, ["f32"] * len(refs))
                ref = known_as(self.sequential, made)
                split = layout.with_dim(dim, (Atom(self.mesh[name], name), *layout.dims[dim]))
                if ref.id in self.sequential.known and (ref, split, rest) not in seen:
                    out.append(Fact(ref, split, picks, f"joined:concat:{name}:{dim}", rest))
                    seen.add((ref, split, rest))
        return out

    def at_home(self, node: Node, facts: list[Fact]) -> list[Fact]:
        """The facts; of pieces that were exchanged, also the readings in which the digit of a mesh
        dim stands beside one that it was cut from."""
        out = list(facts)
        for index, fact in enumerate(facts if node.op == "all_to_all" else ()):
            found = [fact, *homes(self.terms, index, fact)]
            least = min(map(self._digits, found))
            best = [made for made in found if self._digits(made) == least]
            out += recognised(self.sequential, best) if fact not in best else []
        return out

    def _digits(self, fact: Fact) -> int:
        """In how many steps the entries of a term are found among those that it rearranges."""
        return len(view(self.terms, fact.ref.id)[1])

    def apart(self, node: Node) -> bool:
        """Tell operands that wait for a fold apart, coordinate by coordinate."""
        held = [f for v in node.inputs for f in self.out.facts[v]]
        names = {n for f in held for n in f.layout.pending if self.mesh[n] <= MAX_COORDINATES}
        before = sum(len(self.out.facts[v]) for v in node.inputs)
        for name in sorted(names):
            for value in dict.fromkeys(node.inputs):
                if not self.telling.back(value, name):
                    self._split(value, name)
        after = sum(len(self.out.facts[v]) for v in node.inputs)
        return after > before and lookup(node.op).kind not in ("movement", "collective")

    def _split(self, value: str, name: str, folds: bool = True) -> None:
        """Tell apart what single coordinates along a mesh dim hold of a value."""
        facts, chosen = self.out.facts[value], range(self.mesh[name])
        about = self.alike[value], value in self.positive
        if self.mesh[name] > MAX_COORDINATES:
            return
        held = [f if folds or name in f.layout.sharded else None for f in facts]
        facts += split_facts(self.terms, value, held, *about, self.mesh, name, chosen)

    def again(self, node: Node, step: Callable[[], list[Fact]]) -> list[Fact]:
        """The facts with pieces told apart, coordinate by coordinate, and operands read as other
        ones. Unless `pieces`, they are told apart where no reading is a value of one device."""
        apart = self.pieces and self._apart(node)
        read = self._reread(node)
        facts = recognised(self.sequential, step()) if read or apart else []
        if self.pieces or any(f.ref.id in self.sequential.known for f in facts):
            return facts
        apart = self._apart(node)
        return step() if self._reread(node) or apart else facts

    def _apart(self, node: Node) -> bool:
        return lookup(node.op).kind != "collective" and self._pieces(node)

    def otherwise(self, node: Node, facts: list[Fact]) -> bool:
        """Read operands as other pieces where pieces are exchanged, or a split dim is summed over,
        and that is no value of the one-device program: the dim may be of one entry on each rank,
        and so one of its own."""
        held = {n for v in node.inputs for f in self.out.facts[v] for n in f.layout.pending}
        summed = all(not f.layout.pending <= held for f in facts)
        if any(f.ref.id in self.sequential.known for f in facts):
            return False
        return (summed or node.op == "all_to_all") and self._reread(node)

    def _pieces(self, node: Node) -> bool:
        """Tell operands apart along mesh dims that split several of them, or the only one."""
        held = [self.out.facts[v] for v in node.inputs]
        split = [{n for f in facts for n in f.layout.mentioned} for facts in held]
        least = min(len(node.inputs), 2)
        names = {n for s in split for n in s if sum(n in other for other in split) >= least}
        before = sum(map(len, held))
        for name in sorted(n for n in names if self.mesh[n] <= MAX_COORDINATES):
            for value in dict.fromkeys(node.inputs):
                self._split(value, name)
        return sum(map(len, held)) > before

    def _reread(self, node: Node) -> bool:
        """Read operands as pieces of other wholes (`verifier/provers/relate/relayout.py`)."""
        operands = [self.out.facts[v] for v in node.inputs]
        more = reread(self.terms, node, operands, self.mesh)
        for value, fresh in dict(zip(node.inputs, more, strict=True)).items():
            self.out.facts[value] += recognised(self.sequential, fresh)
        return any(more)

    def asked(self, program: Program, contract: Contract) -> None:
        """Read outputs as pieces of what the contract asks for."""
        values = {out.value for out in program.outputs}
        before = {v: len(self.out.facts.get(v, [])) for v in values}
        asked(self.terms, program, contract, self.out.facts)
        for value, count in before.items():
            held = self.out.facts.get(value, [])
            held[count:] = recognised(self.sequential, held[count:])

    def cut(self, node: Node, region: Where, local: tuple[int, ...]) -> list[Fact]:
        """Facts about a cut or join inside each block of a split dim."""
        if node.op not in CUTS:
            return []
        out: list[Fact] = []
        operands = [self.out.facts[v] for v in node.inputs]
        for picks in islice(product(*(range(len(f)) for f in operands)), MAX_CUTS):
            chosen = [facts[i] for facts, i in zip(operands, picks, strict=True)]
            where = common(region, *(f.where for f in chosen))
            layouts = [f.layout for f in chosen]
            if where is None or any(set(dict(where)) & x.pending for x in layouts):
                continue
            made = in_blocks(self.terms, node, [f.ref for f in chosen], layouts)
            if made is not None and made[1].local_shape == local:
                out.append(Fact(*made, picks, f"blocks:{node.op}", where))
        return out
