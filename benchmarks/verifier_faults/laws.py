# pyright: basic
"""Laws of what no single step shows: induction over blocks, layouts, loop peeling, order in time.

Each is a function that says where it does not hold, and nothing where it does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np

from shardproof.verifier.checker import Accepted, check, claims, prepare
from shardproof.verifier.checker.certificate import header, seal
from shardproof.verifier.checker.claims import NotShownError, fits, stands
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.peeling import Peel, peeled
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.order.events import TimeProgram
from shardproof.verifier.order.text import parse_text as parse_events
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.refute.scatter import gather, scatter
from shardproof.verifier.text.assemble import well_formed
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify
from tests.checker.edits import packed
from tests.checker.forging import edited, forged
from tests.checker.second import spelled_out
from tests.checker.test_order import RIGHT, WRONG, accepted, harmless, shown
from tests.laws.test_traits import applications, claiming, unused

Law = Callable[[], str]

# Induction over blocks

BLOCK = """program {name}{mesh}
  input %x: f32[{b}, 6]
  input %z: f32[{b}, 6]
  param %w: f32[3, 6, 6]
  param %v: f32[6, 6]
  %o = full {{shape=[{b}, 6], value=0, dtype=f32}}
  %h, %t, %k, %y = scan %x, %o, %x, %w, %z, %x
      {{length=3, carry=3, xs=1, reverse=false}} body block {{
    carry %a: f32[{b}, 6]
    carry %s: f32[{b}, 6]
    carry %e: f32[{b}, 6]
    xs %p: f32[6, 6]
    const %c: f32[{b}, 6]
    const %d: f32[{b}, 6]
    %m = mm %a, %p
    %q = tanh %m
    %n = add %s, %q
    %f = mul %c, %d
    %r = add %f, %m
    return carry %q, carry %n, carry %e, ys %r
  }}
  %g = scan %x, %v {{length=3, carry=1, xs=0, reverse=false}} body power {{
    carry %a: f32[{b}, 6]
    const %c: f32[6, 6]
    %q = mm %a, %c
    return carry %q
  }}
  return %h, %t, %k, %y, %g
"""
KEEPS = "return carry %q, carry %n, carry %e, ys %r"
WRONG_BLOCKS: Mapping[str, tuple[str, str]] = {
    "another length": ("scan %x, %v {length=3", "scan %x, %v {length=2"),
    "the other direction": ("xs=1, reverse=false", "xs=1, reverse=true"),
    "another first value": ("scan %x, %o", "scan %z, %o"),
    "a start that is not 0": ("scan %x, %o, %x", "scan %x, %x, %x"),
    "another constant": ("%w, %z, %x\n", "%w, %x, %x\n"),
    "a carry that stays": (KEEPS, KEEPS.replace("%q", "%a")),
    "a carry alone that stays": ("return carry %q\n", "return carry %a\n"),
    "another carry": (KEEPS, KEEPS.replace("%n", "%q")),
    "another slice": (KEEPS, KEEPS.replace("%r", "%n")),
    "a constant for a carry": ("%m = mm %a", "%m = mm %d"),
    "another result": ("%h, %t, %k, %y =", "%t, %h, %k, %y ="),
}
"""What is changed in the program of the ranks, whose types stay as they are."""


def _block(many: bool, old: str = "", new: str = "") -> Program:
    text = BLOCK.format(
        name="many" if many else "one", mesh=" mesh(dp=2)" * many, b=2 if many else 4
    )
    return parse_text(text.replace(old, new) if old else text)


def _problem(many: Program) -> Problem:
    rows = from_placements((4, 6), [("dp", 2, "S(0)")])
    free = Layout.replicate
    inputs = {"x": rows, "z": rows, "w": free((3, 6, 6)), "v": free((6, 6))}
    steps = from_placements((3, 4, 6), [("dp", 2, "S(1)")])
    outputs = {f"output:{k}": steps if k == "y" else rows for k in "htkyg"}
    return Problem(_block(False), many, Contract(inputs, outputs))


@cache
def _certificate() -> dict[str, Any]:
    proof = verify(_problem(_block(True)))
    assert isinstance(proof, Proof), proof
    return spelled_out(json.loads(json.dumps(proof.certificate)))


def wrong_blocks() -> Iterator[tuple[str, Problem, dict[str, Any]]]:
    """Programs whose block is another than that of one device, each with a certificate that only
    an induction can reject."""
    for name, (old, new) in WRONG_BLOCKS.items():
        problem = _problem(_block(True, old, new))
        said = json.loads(json.dumps(_certificate()))
        inside = said["claims"]["bodies"]["h"]["values"]
        if name == "a constant for a carry":
            inside["d"].append(inside["a"][0])
            inside["m"][0]["from"] = [len(inside["d"]) - 1, *inside["m"][0]["from"][1:]]
        if name == "another result":
            bodies = said["claims"]["bodies"]
            bodies["t"] = bodies.pop("h")
        said = packed({**said, **header(prepare(problem))})
        yield name, problem, {**said, "seal": seal(said)}


def induction() -> str:
    """A certificate about a block that another block deserves is not accepted."""
    for name, problem, said in wrong_blocks():
        if isinstance(check(said, problem), Accepted):
            return name
    return ""


# Layouts

MESH = Mesh.of(a=2, b=3)
ATOMS = (Atom(2, "a"), Atom(3, "b"), Atom(2), Atom(3), Atom(9))


def _held(dims: tuple[tuple[Atom, ...], ...], at: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The places in the whole that a rank holds, in the order in which it holds them."""
    lines: list[list[int]] = []
    for dim in dims:
        places = [0]
        for atom in dim:
            digits = range(atom.size) if atom.mesh_dim is None else (at[atom.mesh_dim],)
            places = [place * atom.size + d for place in places for d in digits]
        lines.append(places)
    return list(product(*lines))


def _layouts() -> Iterator[Layout]:
    """Of one and of two dims; some of them mean nothing."""
    dims = [atoms for n in range(4) for atoms in permutations(ATOMS, n)]
    for dim in dims:
        yield Layout((dim,))
        yield Layout((dim, (Atom(2, "a"),)))
        yield Layout(((Atom(3),), dim))
        yield Layout((dim,), (("a", "sum"),))


def _means(layout: Layout) -> bool:
    """Whether each rank holds other entries than those that differ from it along a split dim, and
    all of them hold the whole."""
    names = [a.mesh_dim for dim in layout.dims for a in dim if a.mesh_dim]
    names += [name for name, _ in layout.partial]
    free = any(
        first.mesh_dim is None and then.mesh_dim is None
        for dim in layout.dims
        for first, then in pairwise(dim)
    )
    return len(names) == len(set(names)) and not free


def layouts() -> str:
    """What layouts say of pieces is what their digits say."""
    floats, rng = Floats(), np.random.default_rng(0)
    for layout in _layouts():
        local = tuple(
            int(np.prod([a.size for a in dim if a.mesh_dim is None], dtype=int))
            for dim in layout.dims
        )
        shape = tuple(int(np.prod([a.size for a in dim], dtype=int)) for dim in layout.dims)
        for pieces in (local, tuple(n + 1 for n in local)):
            try:
                fits.__wrapped__(layout, MESH, pieces)
                fine = True
            except NotShownError:
                fine = False
            if fine != (pieces == local and _means(layout)):
                return f"{layout} for pieces {pieces}"
        if not _means(layout) or layout.partial:
            continue
        whole = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        if layout.global_shape != shape:
            return f"the whole of {layout}"
        held = scatter(whole, layout, MESH, floats, rng)
        for at, piece in zip(MESH.coords(), held, strict=True):
            want = [int(whole[place]) for place in _held(layout.dims, at)]
            if piece.ravel().tolist() != want:
                return f"the piece of {layout} at {at}"
        if not np.array_equal(gather(held, layout, MESH, floats), whole):
            return f"the pieces of {layout} together"
        for dim in layout.dims:
            loose = [part for a in dim for part in _split(a)]
            if normal(loose) != dim:
                return f"{loose} is {normal(loose)}"
    return _placements() or _ranks()


def _split(atom: Atom) -> list[Atom]:
    """The same digits, written otherwise."""
    if atom.mesh_dim is not None or atom.size != 9:
        return [Atom(1), atom]
    return [Atom(3), Atom(1), Atom(3)]


def _placements() -> str:
    """A dim split over two mesh dims is split within what the first leaves."""
    layout = from_placements((12,), [("a", 2, "S(0)"), ("b", 3, "S(0)")])
    for at in MESH.coords():
        first = 6 * at["a"] + 2 * at["b"]
        if [p for (p,) in _held(layout.dims, at)] != [first, first + 1]:
            return f"S(0), S(0) is {layout}"
    return ""


def _ranks() -> str:
    """A claim speaks of ranks that hold the value, and of all addends of a pending sum or none."""
    whole, pending = Layout.replicate((4,)), Layout(((Atom(4),),), (("a", "sum"),))
    some, other = (("a", (1,)),), (("b", (1,)),)
    told = [(some, whole, (), True), (some, pending, (), False), (other, pending, (), True)]
    told += [(some, whole, some, True), ((), whole, some, False), (some, whole, other, False)]
    told += [((("a", (0, 1)),), whole, (), False), ((("c", (0,)),), whole, (), False)]
    for where, layout, region, right in told:
        claims._stands.cache_clear()
        try:
            stands(where, layout, MESH, region)
            fine = True
        except NotShownError:
            fine = False
        if fine != right:
            return f"a claim about {where} of what lives on {region}"
    return ""


# Loop peeling


def peeling() -> str:
    """A block with steps written out computes what it computed."""
    for reverse in (False, True):
        text = BLOCK.format(name="one", mesh="", b=2)
        text = text.replace("xs=1, reverse=false", f"xs=1, reverse={str(reverse).lower()}")
        strided = "%j = slice %w {dim=0, start=0, stop=2, step=2}\n  %h, %t"
        for program in (parse_text(text), parse_text(text.replace("%h, %t", strided, 1))):
            if why := _peeled(program):
                return f"{why}{' backwards' * reverse}"
    return ""


def _peeled(program: Program) -> str:
    rng, floats = np.random.default_rng(1), Floats()
    given = [{i.name: rng.standard_normal(i.type.shape) for i in program.inputs}]
    (before,) = simulate(program, given, floats)
    for kept in ((), ((0, 1),), ((1, 2),), ((2, 3),), ((0, 2),), ((1, 3),), ((0, 1), (1, 3))):
        for peels in ([Peel("h", kept)], [Peel("h", kept), Peel("g", kept)]):
            try:
                other = well_formed(peeled(program, peels))
                (after,) = simulate(other, given, floats)
            except (ValueError, KeyError) as error:
                return f"{kept}: {error}"
            for a, b in zip(program.outputs, other.outputs, strict=True):
                if not np.allclose(np.asarray(before[a.value]), np.asarray(after[b.value])):
                    return f"%{a.value} with the steps {kept}"
    return ""


# Order in time

HOLDS = "communicator tp = (0, 1)\nranks 0-1\n  holds g\n  "
WRONG_EVENTS = (
    "wait h\nall_reduce tp reads g writes g handle h",
    "all_reduce tp reads g writes g handle h",
    "await m\nrecord m",
    "free g\ncompute writes g",
    "alloc s\ncompute reads s",
    "compute reads s\ncompute writes s",
    "compute writes g\ncompute reads g stream side",
)
TIMES = 4
"""Edits of each section."""


def order() -> str:
    """No section is accepted for a program of events that is wrong; of one that is right, only
    what a machine runs without harm."""
    texts = {text: parse_events(HOLDS + text.replace("\n", "\n  ")) for text in WRONG_EVENTS}
    for name, program in (*texts.items(), *WRONG.items()):
        rng = random.Random(name)
        for section in (forged(program), *_flat(program)):
            told = [section, *(edited(section, rng) for _ in range(TIMES))]
            if any(accepted(one, program) for one in told):
                return name
    for name in [*RIGHT][::4]:
        rng, program = random.Random(name), RIGHT[name]
        for _ in range(TIMES):
            section = edited(json.loads(shown(name)), rng)
            if accepted(section, program) and not harmless(section, program):
                return name
    return ""


def _flat(program: TimeProgram) -> Iterator[list[dict[str, Any]]]:
    """All steps at once."""
    said = forged(program)
    if said and isinstance(said[0]["numbers"], list) and said[0]["numbers"]:
        yield [
            {"numbers": [0, [1, _length(way["numbers"]) - 1]], "paths": way["paths"]}
            for way in said
        ]


def _length(packed_: list[Any]) -> int:
    return sum(item[1] if isinstance(item, list) else 1 for item in packed_)


# Claims of declarations


def claims_of_ops() -> str:
    """An op that claims to use every entry of its operands has no value without one of them."""
    for name in claiming("strict"):
        for form, attrs in applications(REGISTRY[name]):
            if unused(REGISTRY[name], form, attrs):
                return name
    return ""
