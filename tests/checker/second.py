"""A second checker, written from `docs/certificate.md`: it runs both programs on numbers.

Nothing of `verifier/checker` is used and no rule is known here. Every claim is taken at its word:
on the ranks it names, the pieces that they hold must be those of the one-device value it names,
read by its layout, in float64 and on several inputs. A claim that names none must be about pieces
that a whole exists for. Runs are made by an interpreter of its own, from the meanings of the ops;
the readers, the inlining of composites and the events of a program are shared with the checker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import layout_from_json, output_key, where_from_json
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.peeling import Peel, PeelError, peeled
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.program import Node, Program, in_order
from shardproof.verifier.kernel.program.types import Affine, Mesh
from shardproof.verifier.kernel.program.where import Where, contains
from shardproof.verifier.kernel.rank_sets import Regions, regions
from shardproof.verifier.ops import facets
from shardproof.verifier.order.events import TimeProgram
from shardproof.verifier.order.from_program import from_program
from shardproof.verifier.order.graph import Graph, build
from shardproof.verifier.order.machine import replay
from shardproof.verifier.order.matching import match
from shardproof.verifier.order.paths import paths
from shardproof.verifier.order.pieces import neighbours, pieces
from shardproof.verifier.order.violation import Trace
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.cross_entropy import FORMS, open_entropy
from shardproof.verifier.refute.premises import Premises
from shardproof.verifier.refute.sampling import rooted, sample, sized
from shardproof.verifier.text.assemble import shared, well_formed
from shardproof.verifier.text.digest import digest

FLOATS = Floats()
DRAWS = ((1.0, False), (0.25, True), (1.0, False), (0.5, True))
"""Inputs: how large, and whether all floats are positive."""
CLOSE = 1e-7
FOLDS = {"sum": np.add, "max": np.maximum, "min": np.minimum}
Pieces = list[Array | None]
"""What each rank holds of a value, in rank order; None where it does not live."""


class FalseError(ValueError):
    """What a certificate says that is not so."""


def need(holds: bool, why: str) -> None:
    if not holds:
        raise FalseError(why)


@dataclass
class Ran:
    """What a program held in one run; by the first output of a scan, what each step of it held."""

    program: Program
    values: dict[str, Pieces] = field(default_factory=dict[str, Pieces])
    steps: dict[str, list[Ran]] = field(default_factory=dict[str, "list[Ran]"])
    node: dict[str, Node] = field(default_factory=dict[str, Node])


def run(program: Program, inputs: Mapping[str, Pieces], mesh: Mesh, places: Regions) -> Ran:
    """Every value of every rank."""
    out = Ran(program, dict(inputs))
    coords = mesh.coords()
    for node in program.nodes:
        given = [out.values[v] for v in node.inputs]
        if node.body is not None:
            _scan(out, node, given, mesh, places.inside(node))
            continue
        op, (name,) = lookup(node.op), node.outputs
        attrs = op.with_defaults(node.attrs)
        here = [contains(places.values[name], at) for at in coords]
        if "mesh_dim" in attrs and op.kind in ("collective", "movement"):
            made = _together(facets(op.name).meaning, attrs, given[0], mesh)
        else:
            made: Pieces = [None] * len(coords)
            for rank, at in enumerate(coords):
                if not here[rank]:
                    continue
                mine = [held[rank] for held in given]
                if op.kind == "movement":
                    made[rank] = next(x for x in mine if x is not None)
                    continue
                told = {k: v.at(at) if isinstance(v, Affine) else v for k, v in attrs.items()}
                made[rank] = np.asarray(facets(op.name).meaning(FLOATS, *mine, **told))
        out.values[name] = [x if at else None for x, at in zip(made, here, strict=True)]
    return out


def _together(meaning: Any, attrs: dict[str, Any], given: Pieces, mesh: Mesh) -> Pieces:
    """Ranks that differ along the named mesh dims only are a group, the last name fastest."""
    named = attrs["mesh_dim"]
    names = (named,) if isinstance(named, str) else tuple(named)
    groups: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
    for rank, at in enumerate(mesh.coords()):
        rest = tuple(at[n] for n in mesh.names if n not in names)
        groups.setdefault(rest, []).append((tuple(at[n] for n in names), rank))
    made: Pieces = [None] * len(given)
    for group in groups.values():
        ranks = [rank for _, rank in sorted(group)]
        mine = [given[rank] for rank in ranks]
        if any(x is not None for x in mine):
            for rank, value in zip(ranks, meaning(FLOATS, mine, **attrs), strict=True):
                made[rank] = value
    return made


def _scan(out: Ran, node: Node, given: list[Pieces], mesh: Mesh, places: Regions) -> None:
    body = node.body
    assert body is not None
    length, carries, xs = (int(node.attrs[k]) for k in ("length", "carry", "xs"))  # type: ignore[arg-type]
    coords = mesh.coords()
    state, steps = given[:carries], dict[int, Ran]()
    for step in range(length)[:: -1 if node.attrs.get("reverse") else 1]:
        slices = [[None if x is None else x[step] for x in p] for p in given[carries:][:xs]]
        entering = [*state, *slices, *given[carries + xs :]]
        inputs: dict[str, Pieces] = {}
        for item, held in zip(body.inputs, entering, strict=True):
            here = [contains(places.values[item.name], at) for at in coords]
            inputs[item.name] = [x if at else None for x, at in zip(held, here, strict=True)]
        steps[step] = run(body, inputs, mesh, places)
        state = [steps[step].values[o.value] for o in body.outputs[:carries]]
    inner = [steps[step] for step in range(length)]
    out.steps[node.outputs[0]], out.node[node.outputs[0]] = inner, node
    for name, held in zip(node.outputs, state, strict=False):
        out.values[name] = held
    for name, end in zip(node.outputs[carries:], body.outputs[carries:], strict=True):
        parts = zip(*(step.values[end.value] for step in inner), strict=True)
        out.values[name] = [None if any(x is None for x in p) else np.stack(p) for p in parts]


# What a layout says


def sizes(layout: Layout) -> tuple[int, ...]:
    return tuple(atom.size for dim in layout.dims for atom in dim)


def index(layout: Layout, at: Mapping[str, int]) -> tuple[Any, ...]:
    """Where the piece of a rank stands in the whole, its digits apart."""
    atoms = [atom for dim in layout.dims for atom in dim]
    return tuple(slice(None) if a.mesh_dim is None else at[a.mesh_dim] for a in atoms)


def folded(layout: Layout, held: Pieces, mesh: Mesh) -> Pieces:
    """What each rank has once the folds that are pending are taken, over all their ranks."""
    coords, pending = mesh.coords(), dict(layout.partial)
    need(len(set(pending.values())) <= 1, f"folds of two kinds are pending in {layout}")
    if not pending:
        return held
    fold = FOLDS[next(iter(pending.values()))]
    need(pending.keys() <= set(mesh.names), f"no such mesh dim in {layout}")
    sums: dict[tuple[int, ...], list[Array | None]] = {}
    keys = [tuple(at[n] for n in mesh.names if n not in pending) for at in coords]
    for key, piece in zip(keys, held, strict=True):
        sums.setdefault(key, []).append(piece)
    whole: dict[tuple[int, ...], Array | None] = {}
    for key, found in sums.items():
        known = [x for x in found if x is not None]
        whole[key] = None
        if len(known) == len(found):
            whole[key] = known[0]
            for piece in known[1:]:
                whole[key] = fold(whole[key], piece)
    return [whole[key] for key in keys]


def close(a: Array, b: Array, size: float) -> bool:
    """Equal where both have a value; floats up to rounding of numbers of this size."""
    if a.shape != b.shape:
        return False
    if a.dtype.kind != "f" and b.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    known = np.isfinite(a) & np.isfinite(b)
    return bool(np.all(np.abs(a[known] - b[known]) <= CLOSE * max(size, 1e-3)))


def largest(held: Sequence[Array | None]) -> float:
    arrays = [x[np.isfinite(x)] for x in held if x is not None and x.dtype.kind == "f"]
    return max((float(np.max(np.abs(x), initial=0.0)) for x in arrays), default=0.0)


def made_up(layout: Layout, where: Where, held: Pieces, mesh: Mesh, whole: Array | None) -> Array:
    """The whole that the pieces on the ranks of `where` make up, which is `whole` if one is given.

    Entries that no rank of `where` holds are left 0.

    Raises:
        FalseError: a rank holds another piece than the layout says, or than another rank.
    """
    for atom in (a for dim in layout.dims for a in dim):
        if atom.mesh_dim is not None:
            fits = atom.mesh_dim in mesh.names and mesh[atom.mesh_dim] == atom.size
            need(fits, f"{atom} on a mesh {mesh}")
    bound = [a.mesh_dim for dim in layout.dims for a in dim if a.mesh_dim is not None]
    need(len(set(bound)) == len(bound), f"a mesh dim splits twice in {layout}")
    need(not layout.pending & (set(bound) | set(dict(where))), f"{layout} on some ranks only")
    full = folded(layout, held, mesh)
    size = largest(held) if whole is None else max(largest(held), largest([whole]))
    shape = sizes(layout)
    local = tuple(a.size for dim in layout.dims for a in dim if a.mesh_dim is None)
    made: Array | None = None
    seen: Array | None = None
    for rank, at in enumerate(mesh.coords()):
        if not contains(where, at):
            continue
        piece = full[rank]
        need(piece is not None, f"rank {rank} holds nothing")
        assert piece is not None
        need(piece.shape == layout.local_shape, f"rank {rank} holds a piece {piece.shape}")
        spot, piece = index(layout, at), piece.reshape(local)
        if whole is not None:
            need(whole.shape == layout.global_shape, f"the value has shape {whole.shape}")
            there = whole.reshape(shape)[spot].reshape(local)
            need(close(piece, there, size), f"rank {rank} holds another piece under {layout}")
        if made is None or seen is None:
            made, seen = np.zeros(shape, piece.dtype), np.zeros(shape, bool)
        if np.all(seen[spot]):
            same = close(piece, made[spot].reshape(local), size)
            need(same, f"rank {rank} holds another piece than a rank before it, under {layout}")
        made[spot], seen[spot] = piece.reshape(made[spot].shape), True
    need(made is not None, "a claim about no rank")
    assert made is not None
    return made.reshape(layout.global_shape)


# What a certificate says


def spelled_out(document: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate with layouts, ranks and blocks where they are named.

    Raises FalseError: something is listed that nothing names, or the other way round.
    """
    named: dict[str, set[int]] = {"layouts": set(), "ranks": set(), "blocks": set()}

    def listed(kind: str, place: Any) -> Any:
        held = document[kind]
        need(type(place) is int and 0 <= place < len(held), f"{kind} has no {place}")
        named[kind].add(place)
        return held[place]

    def scope(said: Mapping[str, Any], deep: int) -> dict[str, Any]:
        need(deep < 100, "blocks that hold themselves")
        values: dict[str, Any] = {}
        for name, rows in said["values"].items():
            values[name] = [{**row, "layout": listed("layouts", row["layout"])} for row in rows]
            for row in (row for row in values[name] if "on" in row):
                row["on"] = listed("ranks", row["on"])
        bodies = {
            label: {"block": body["block"], **scope(listed("blocks", body["claims"]), deep + 1)}
            for label, body in said["bodies"].items()
        }
        return {"values": values, "bodies": bodies}

    claims = scope(document["claims"], 0)
    for kind, places in named.items():
        need(len(places) == len(document[kind]), f"{kind} that nothing names")
    return {**{k: v for k, v in document.items() if k not in named}, "claims": claims}


class Second:
    """Judges certificates of one problem; what was run is kept."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.contract = problem, problem.contract
        self.plain = plain(problem.sequential)
        self.many = plain(problem.distributed)
        self.mesh = self.many.mesh
        self.places = regions(self.many)
        need(not self.places.faults(), "a node that some rank cannot run")
        self.inputs = list(draws(self.plain, problem))
        need(bool(self.inputs), "the contract speaks of no inputs that were tried")
        self.theirs = [run(self.many, self._dealt(i), self.mesh, self.places) for i in self.inputs]
        self._ours: dict[str, list[Ran]] = {}

    def check(self, certificate: Any) -> None:
        """Raises FalseError (or another ValueError, KeyError, TypeError: no certificate at all)."""
        at = Cursor(certificate, "certificate")
        self._header(at)
        self._order(at["order"])
        if "kind" in at:
            self._by_elements(at)
            return
        one, at = self.one(at), Cursor(spelled_out(at.object()), "certificate")
        for ours, theirs in zip(self.runs(one), self.theirs, strict=True):
            wholes: dict[tuple[str, int], Array] = {}
            self._claims(at["claims"], [ours], [theirs], wholes)
            self._outputs(at, ours, wholes)

    def runs(self, one: Program) -> list[Ran]:
        """What one device holds, on every draw."""
        key = digest(one)
        if key not in self._ours:
            mesh, places = Mesh(), regions(one)
            given = [{k: [v] for k, v in drawn.items()} for drawn in self.inputs]
            self._ours[key] = [run(one, inputs, mesh, places) for inputs in given]
        return self._ours[key]

    def _dealt(self, inputs: Mapping[str, Array]) -> dict[str, Pieces]:
        """The piece of every rank. A rank along a pending dim gets nothing but the first its all;
        of a maximum or minimum, every rank all."""
        out: dict[str, Pieces] = {}
        for item in self.many.inputs:
            layout, whole = self.contract.inputs[item.name], inputs[item.name]
            first = {n for n, fold in layout.partial if fold == "sum"}
            held: Pieces = []
            for at in self.mesh.coords():
                piece = whole.reshape(sizes(layout))[index(layout, at)].reshape(layout.local_shape)
                later = any(at[n] for n in first)
                there = contains(self.places.values[item.name], at)
                held.append((np.zeros_like(piece) if later else piece) if there else None)
            out[item.name] = held
        return out

    def _header(self, at: Cursor) -> None:
        need(at["version"].value == 5, "another version")
        for side, program in (("sequential", self.plain), ("distributed", self.many)):
            said = {"name": program.name, "digest": digest(program)}
            need(at[side].value == said, f"another {side} program")
        need(at["mesh"].value == [list(d) for d in self.mesh.dims], "another mesh")
        need(at["contract"].value == self.contract.to_json(), "another contract")
        body = {k: v for k, v in at.object().items() if k != "seal"}
        text = json.dumps(body, sort_keys=True).encode()
        need(at["seal"].value == hashlib.sha256(text).hexdigest(), "another seal")

    def one(self, at: Cursor) -> Program:
        """The one-device program that the claims are about."""
        one = self.plain
        if "opened" in at:
            wanted = at["opened"].value
            ways = (open_entropy(one, form, unmarked=True)[0] for form in FORMS)
            found = next((way for way in ways if digest(way) == wanted), None)
            need(found is not None, "opened up otherwise")
            assert found is not None
            one = plain(found)
        peels: list[Peel] = []
        for item in at["peels"].items() if "peels" in at else ():
            block, kept = item.items()
            runs = [(a.integer(), b.integer()) for a, b in (pair.items() for pair in kept.items())]
            peels.append(Peel(block.text(), tuple(runs)))
        try:
            one = plain(peeled(one, peels)) if peels else one
        except PeelError as error:
            raise FalseError(str(error)) from None
        self._same(one)
        return one

    def _same(self, one: Program) -> None:
        """The program that the claims are about computes what the given one does."""
        if one is self.plain:
            return
        for a, b in zip(self.runs(self.plain), self.runs(one), strict=True):
            for mine, other in zip(a.program.outputs, b.program.outputs, strict=True):
                (x,), (y,) = a.values[mine.value], b.values[other.value]
                assert x is not None
                assert y is not None
                need(close(x, y, largest([x])), "another one-device program")

    def _claims(
        self,
        at: Cursor,
        ours: Sequence[Ran],
        theirs: Sequence[Ran],
        wholes: dict[tuple[str, int], Array],
    ) -> None:
        """Claims about a program, or about every step of a repeated block."""
        program = theirs[0].program
        need(at["values"].object().keys() <= program.types.keys(), "a claim about no value")
        need(at["bodies"].object().keys() <= theirs[0].steps.keys(), "claims about no body")
        operands = {out: node for node in program.nodes for out in node.outputs}
        counts = {name: len(rows.items()) for name, rows in at["values"].entries()}
        for name, rows in at["values"].entries():
            for number, row in enumerate(rows.items()):
                self._rests(row, number, name, operands.get(name), counts)
                for mine, other in zip(ours, theirs, strict=True):
                    wholes[name, number] = self._holds(row, mine, other.values[name], name)
        for label, inner in at["bodies"].entries():
            block = inner["block"].text()
            need(block in ours[0].steps, f"%{block} is not a repeated block")
            a, b = ours[0].node[block].attrs, theirs[0].node[label].attrs
            need(all(a.get(k, False) == b.get(k, False) for k in ("length", "reverse")), "steps")
            steps = [s for one in ours for s in one.steps[block]]
            self._claims(inner, steps, [s for many in theirs for s in many.steps[label]], {})

    def _rests(
        self, row: Cursor, number: int, name: str, node: Node | None, counts: Mapping[str, int]
    ) -> None:
        """A claim rests on claims that are there."""
        rule, premises = row["rule"].text(), [p.integer() for p in row["from"].items()]
        if rule.startswith("joined"):
            need(all(0 <= p < number for p in premises), f"%{name} rests on a later claim")
        elif node is None or node.body is not None:
            need(not premises, f"%{name} rests on claims")
        else:
            need(len(premises) == len(node.inputs), f"%{name} rests on too few claims")
            for value, premise in zip(node.inputs, premises, strict=True):
                need(-1 <= premise < counts.get(value, 0), f"%{value} has no claim {premise}")

    def _holds(self, row: Cursor, ours: Ran, held: Pieces, name: str) -> Array:
        """The whole that a claim is about. Raises FalseError where it is not so."""
        layout = layout_from_json(row["layout"])
        where = where_from_json(row["on"]) if "on" in row else ()
        whole: Array | None = None
        if row["of"].value is not None:
            factor = row["factor"].rational()
            need(row["of"].text() in ours.values, f"no value {row['of'].value}")
            (whole,) = ours.values[row["of"].text()]
            assert whole is not None
            whole = whole if factor == Fraction(1) else whole * float(factor)
            if "cut" in row:
                dim, start, stop = row["cut"].integers()
                whole = np.take(whole, range(start, stop), axis=dim)
        try:
            made = made_up(layout, where, held, self.mesh, whole)
        except FalseError as error:
            raise FalseError(f"%{name}: {error}") from None
        return made if whole is None else whole

    def _outputs(self, at: Cursor, ours: Ran, wholes: Mapping[tuple[str, int], Array]) -> None:
        """The chosen claims are what the contract asks for."""
        theirs = {output_key(o): o.value for o in self.many.outputs}
        keys = [output_key(o) for o in self.plain.outputs]
        need(at["outputs"].object().keys() == set(keys), "other outputs")
        for key, out in zip(keys, ours.program.outputs, strict=True):
            number = at["outputs"][key].integer()
            need((theirs[key], number) in wholes, f"{key} has no claim {number}")
            row = at["claims"]["values"][theirs[key]].items()[number]
            layout, (wanted,) = layout_from_json(row["layout"]), ours.values[out.value]
            where = where_from_json(row["on"]) if "on" in row else ()
            asked = self.contract.wanted.get(key, ())
            covered = all(contains(where, c) for c in self.mesh.coords() if contains(asked, c))
            need(covered, f"{key} is claimed on too few ranks")
            found = wholes[theirs[key], number]
            assert wanted is not None
            need(close(found, wanted, largest([wanted])), f"{key} is another value")
            nought = not np.any(found) and not layout.partial
            need(layout == self.contract.outputs[key] or nought, f"{key} is laid out otherwise")

    def _by_elements(self, at: Cursor) -> None:
        """No steps: the outputs themselves."""
        need(at["kind"].value == "elementwise" and at["indices"].value == {}, "another kind")
        extents = {i.name: [i.type.dtype, list(i.type.shape)] for i in self.plain.inputs}
        need(at["extents"].value == extents, "other extents")
        theirs = {output_key(o): o.value for o in self.many.outputs}
        keys = {output_key(o): o.value for o in self.plain.outputs}
        need(at["outputs"].object().keys() == keys.keys(), "other outputs")
        for ours, many in zip(self.runs(self.plain), self.theirs, strict=True):
            for key, value in keys.items():
                (wanted,) = ours.values[value]
                layout, where = self.contract.outputs[key], self.contract.wanted.get(key, ())
                made_up(layout, where, many.values[theirs[key]], self.mesh, wanted)
        for item in at["identities"].items() if "identities" in at else ():
            identity(item.value)

    # The order in time

    def _order(self, at: Cursor) -> None:
        if in_order(self.many):
            need(at.items() == [], "events of a program without any")
            return
        events = from_program(self.many, meetings=True)
        ways = [way for _, way in paths(events)]
        need(len(at.items()) == len(ways), "another number of ways")
        for item, way in zip(at.items(), ways, strict=True):
            need(item.object().keys() == {"numbers", "paths"}, "other entries")
            in_time(way, list(unpacked(item["numbers"])), list(unpacked(item["paths"])))


def identity(said: Mapping[str, Any]) -> None:
    """The steps take the difference to 0, and so it is on numbers. Raises FalseError."""
    need(said.keys() == {"atoms", "difference", "steps"}, "another identity")
    rng, atoms = np.random.default_rng(1), said["atoms"]
    for _ in DRAWS:
        values = list[float]()
        for name, args in atoms:
            given = [on_numbers(arg, values) for arg in args]
            values.append(rng.uniform(0.5, 1.5) if not name else applied(name, given))
        parts = [on_numbers([row], values) for row in said["difference"]]
        far = abs(sum(parts)) > CLOSE * max([1.0, *map(abs, parts)])
        need(not far, f"a difference of {sum(parts)}")
    left = {tuple(m): Fraction(c) for c, m in spelled(said["difference"], atoms)}
    for name, place in said["steps"]:
        need(atoms[place][0] == name and name in ("reciprocal", "rsqrt", "sqrt"), "no axiom")
        left = cleared(left, place, atoms, 1 if name == "reciprocal" else 2)
    need(not left, "a rest")


def spelled(rows: Sequence[Any], atoms: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Monomials as atoms in order, with their powers; an exponential is one of each summand of
    what it is taken of, with any power."""
    for coef, mono in rows:
        made: Any = ()
        for atom, power in mono:
            name, args = atoms[atom]
            if name == "exp":
                need(power == 1, "a power of an exponential")
                summands = [(str(sorted(m)), Fraction(c)) for c, m in args[0]]
                made = product(made, summands)
            else:
                made = product(made, [(atom, power)])
        yield coef, made


def product(a: Any, b: Any) -> Any:
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(((k, p) for k, p in powers.items() if p), key=str))


def cleared(left: Any, place: int, atoms: Sequence[Any], degree: int) -> Any:
    """By y^n x = 1 or y^n = x, as one that knows no more."""
    atom = atoms[place]
    (rows,) = atom[1]
    of = [(Fraction(c), tuple(m)) for c, m in spelled(rows, atoms)]
    most = max((int(dict(m).get(place, 0)) // degree for m in left), default=0)
    out: Any = {}
    for mono, coef in left.items():
        power = int(dict(mono).get(place, 0))
        times = power // degree if atom[0] == "sqrt" else most - power // degree
        rest = dict(mono) | {place: Fraction(power % degree)}
        parts = {product((), rest.items()): coef}
        for _ in range(times):
            more: Any = {}
            for m, c in parts.items():
                for d, n in of:
                    at = product(m, n)
                    more[at] = more.get(at, 0) + c * d
            parts = more
        for m, c in parts.items():
            out[m] = out.get(m, 0) + c
    return {m: c for m, c in out.items() if c}


def on_numbers(rows: Sequence[Any], values: Sequence[float]) -> float:
    total = 0.0
    for coef, mono in rows:
        powers = (values[atom] ** float(Fraction(power)) for atom, power in mono)
        total += float(Fraction(coef)) * float(np.prod([*powers]))
    return total


def applied(name: str, given: Sequence[float]) -> float:
    """A function that the page names, or any that is the same wherever it has this name."""
    match name:
        case "max":
            return max(given)
        case "above 0":
            return float(given[0] > 0)
        case "is 0":
            return float(given[0] == 0)
        case "reciprocal" | "rsqrt" | "sqrt" | "exp" | "log":
            made = {"reciprocal": np.reciprocal, "sqrt": np.sqrt, "exp": np.exp, "log": np.log}
            made["rsqrt"] = lambda x: 1 / np.sqrt(x)
            return float(made[name](np.float64(given[0])))
        case _:
            seed = [int(b) for b in hashlib.sha256(name.encode()).digest()[:4]]
            return float(np.cos(given[0] * (1 + seed[0] / 97) + seed[1]))


def unpacked(at: Cursor) -> list[int]:
    """`[back, count]` stands for `count` integers, each the one `back` places before."""
    out: list[int] = []
    for item in at.items():
        if isinstance(item.value, list):
            back, count = (part.integer() for part in item.items())
            need(0 < back <= len(out) and 0 <= count < 10**6, "no such integers before it")
            for _ in range(count):
                out.append(out[-back])
        else:
            out.append(item.integer())
    return out


def in_time(program: TimeProgram, differences: list[int], listed: list[int]) -> None:
    """The numbers rise along every edge, and each conflict that no stream orders has its path."""
    matching = match(program)
    need(not matching.faults, "ranks that do not meet")
    waits = build(program, matching, waits=True, one_queue=not program.machine.concurrent)
    numbers = [sum(differences[: i + 1]) for i in range(len(differences))]
    need(len(numbers) == len(waits.steps), "another number of steps")
    for node, successors in enumerate(waits.after):
        need(all(numbers[node] < numbers[then] for then in successors), "the numbers do not rise")
    steps = waits.trace(sorted(range(len(numbers)), key=lambda node: numbers[node]))
    outcome = replay(Trace(program, steps, "waits" if program.machine.concurrent else "queue"))
    faulty = outcome.sights or outcome.stuck or outcome.in_flight or outcome.left_over
    need(not faulty, "a run in the order of the numbers goes wrong")
    graph, left, seen = build(program, matching, waits=False), iter(listed), set[Any]()
    for piece in pieces(program, lambda unit: numbers[waits.start((unit[0], unit[1], -1))]):
        for first, then in neighbours(piece):
            if (first.unit, then.unit) in seen:
                continue
            seen.add((first.unit, then.unit))
            begin, goal = graph.end(first.unit), graph.start((then.unit[0], then.unit[1], -1))
            need(goal in reachable(graph, begin), f"a race about {piece.buffer}")
            if not graph.follows(begin, goal):
                _walk(graph, begin, goal, left)
    need(next(left, None) is None, "more paths than pairs")


def _walk(graph: Graph, node: int, goal: int, left: Iterator[int]) -> None:
    """A path: how many edges, and for each how many nodes on its stream ahead it starts, and which
    of the edges there it is."""
    for _ in range(next(left, 0)):
        ahead, edge = next(left, -1), next(left, -1)
        need(ahead == 0 or (ahead > 0 and graph.follows(node, node + ahead)), "off its stream")
        need(0 <= edge < len(graph.after[node + ahead]), "no such edge")
        node = graph.after[node + ahead][edge]
    need(node == goal or graph.follows(node, goal), "a path that leads elsewhere")


def reachable(graph: Graph, begin: int) -> set[int]:
    """Every node that comes after a node: by edges, and by places in one stream."""
    found, todo = {begin}, [begin]
    while todo:
        node = todo.pop()
        later = (n for n in range(node + 1, len(graph.chain)) if graph.follows(node, n))
        for then in (*graph.after[node], *later):
            if then not in found:
                found.add(then)
                todo.append(then)
    return found


def plain(program: Program) -> Program:
    """In primitive ops."""
    return inline(well_formed(shared(program)))


def draws(one: Program, problem: Problem) -> Iterator[dict[str, Array]]:
    """Inputs on which the contract speaks."""
    premises = Premises(one, problem.contract, problem.distributed.mesh)
    rng = np.random.default_rng(5)
    found = [
        sized(sample(one, FLOATS, rng, problem.consts, False), size, positive, problem.consts)
        for size, positive in DRAWS
    ]
    for drawn in (*found, next(rooted(one, problem.consts, 5))):
        met = premises.met(drawn, FLOATS, rng)
        if met is not None:
            yield met
