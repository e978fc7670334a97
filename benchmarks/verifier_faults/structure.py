# pyright: basic
"""Faults of what no single step shows, each with the law that does not hold under it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchmarks.verifier_faults.edits import Edit
from benchmarks.verifier_faults.equal import equal_terms, obligations
from benchmarks.verifier_faults.laws import Law, claims_of_ops, induction, layouts, order, peeling
from shardproof.verifier.ops import REGISTRY


@dataclass(frozen=True)
class Fault:
    name: str
    edit: Edit
    law: Law

    @property
    def place(self) -> str:
        """The module it lies in."""
        return self.edit.room.removeprefix("shardproof.verifier.")


FAULTS: list[Fault] = []


def fault(law: Law, name: str, place: str, old: str, new: Any) -> None:
    FAULTS.append(Fault(name, Edit(f"shardproof.verifier.{place}", old, new), law))


BLOCKS = "checker.induction:"
fault(
    induction,
    "blocks of any length take as many steps",
    BLOCKS + "likewise",
    '("length", "reverse")',
    '("reverse",)',
)
fault(
    induction,
    "the direction of a block does not matter",
    BLOCKS + "likewise",
    '("length", "reverse")',
    '("length",)',
)
fault(
    induction,
    "a carry may start as anything",
    BLOCKS + "enters",
    "same(one.terms, claim.ref, _scaled(operand, ref))",
    "True",
)
fault(
    induction,
    "what starts as 0 on one device may start as anything",
    BLOCKS + "enters",
    "claim.is_zero and operand.coef == 0",
    "operand.coef == 0",
)
fault(
    induction,
    "a constant may be taken for a carry",
    BLOCKS + "enters",
    "slot not in range(len(scan.operands))[theirs[kind]]",
    "False",
)
fault(
    induction,
    "a step may leave anything",
    BLOCKS + "kept",
    "same(scan.inner.terms, r.ref, want)",
    "True",
)
fault(
    induction,
    "a step need not change a carry",
    BLOCKS + "kept",
    "same(scan.inner.terms, r.ref, want)",
    "(same(scan.inner.terms, r.ref, want) or r.ref == claim.ref)",
)
fault(
    induction,
    "claims about carries need not be kept",
    "checker.replay:_Walk._inside",
    "not all(kept(scan, c, inner[end.value]) for c in claims)",
    "False",
)
fault(
    induction,
    "the slices of a block are those of any value",
    BLOCKS + "follows",
    "same(scan.inner.terms, claim.ref, want)",
    "True",
)
fault(
    induction,
    "any result of a block may be meant",
    BLOCKS + "follows",
    "outer.id != ref.id or (p < carries) != carry",
    "(p < carries) != carry",
)

LAYOUT = "kernel.layout:"
fault(
    layouts,
    "free digits side by side are added",
    LAYOUT + "normal",
    "out[-1].size * atom.size",
    "out[-1].size + atom.size",
)
fault(
    layouts,
    "a digit of two values is left out",
    LAYOUT + "normal",
    "atom.size == 1",
    "atom.size <= 2",
)
fault(
    layouts,
    "a digit of a rank is merged with free ones",
    LAYOUT + "normal",
    "if out and atom.mesh_dim is None and",
    "if out and",
)
fault(
    layouts,
    "a split dim is as long as a piece",
    LAYOUT + "global_extent",
    "for a in dim",
    "for a in dim if a.mesh_dim is None",
)
fault(
    layouts,
    "a piece is as long as the whole",
    LAYOUT + "local_extent",
    " if a.mesh_dim is None",
    "",
)
fault(
    layouts,
    "a second split goes around the first",
    LAYOUT + "split_leading",
    "(*dim[:index], Atom(size, mesh_dim), Atom(atom.size // size), *dim[index + 1 :])",
    "(Atom(size, mesh_dim), *dim[:index], Atom(atom.size // size), *dim[index + 1 :])",
)
WELL = "checker.claims:fits"
fault(
    layouts,
    "a mesh dim may split two dims",
    WELL,
    "len(set(used)) == len(used)",
    "True",
)
fault(
    layouts,
    "a mesh dim may split a dim and be summed over",
    WELL,
    "        used.append(name)\n    need",
    "    need",
)
fault(
    layouts,
    "a layout may be one of other pieces",
    WELL,
    "layout.local_shape == local",
    "True",
)
fault(
    layouts,
    "ranks hold pieces in another order",
    "refute.scatter:cut",
    "coords[a.mesh_dim] for a",
    "a.size - 1 - coords[a.mesh_dim] for a",
)
STANDS = "checker.claims:_stands"
fault(
    layouts,
    "a claim may speak of ranks that hold nothing",
    STANDS,
    "within(where, region)",
    "True",
)
fault(
    layouts,
    "a claim may speak of some addends of a sum",
    STANDS,
    "not layout.pending & set(dict(where))",
    "True",
)

PEEL = "kernel.peeling:_Writer."
fault(
    peeling,
    "steps that are written out run forwards",
    PEEL + "written",
    'reversed(runs) if node.attrs.get("reverse") else runs',
    "runs",
)
fault(
    peeling,
    "every run of steps starts with the first carries",
    PEEL + "written",
    "state, made[start] = results[:carries], results[carries:]",
    "last, made[start] = results[:carries], results[carries:]\n        "
    "state = last if stop == self.length else state",
)
fault(
    peeling,
    "slices are joined the other way round",
    PEEL + "written",
    "made[start][k] for start, _ in runs",
    "made[start][k] for start, _ in reversed(runs)",
)
fault(
    peeling,
    "every run reads the first slices",
    PEEL + "_cut",
    '"start": start, "stop": stop}',
    '"start": 0, "stop": stop - start}',
)
fault(
    peeling,
    "every cut of a value is the first one",
    PEEL + "_cut",
    "key = (value, start, stop)",
    "key = (value, 0, stop - start)",
)
fault(
    peeling,
    "a cut in strides is a cut",
    "kernel.peeling:_cuts",
    'attrs.get("step") == 1',
    "True",
)
fault(
    peeling,
    "the step before repeated ones is left out",
    PEEL + "_runs",
    "range(at, start)",
    "range(at, start - (0 < start < stop))",
)
fault(
    peeling,
    "later ops read what was before the block",
    PEEL + "written",
    "zip(node.outputs[:carries], state, strict=True)",
    "zip(node.outputs[:carries], node.inputs, strict=False)",
)

TIME = "checker.order:"
RUN = TIME + "_Run."
fault(
    order,
    "two steps that wait for each other may have one number",
    RUN + "_rising",
    "numbers[node] >= numbers[then]",
    "numbers[node] > numbers[then]",
)
fault(
    order,
    "nothing has to be waited for",
    TIME + "_handles",
    "not left",
    "True",
)
fault(
    order,
    "a mark may be awaited before it is there",
    TIME + "_handles",
    "mark in marks",
    "True",
)
fault(
    order,
    "any path leads to the next access",
    RUN + "_path",
    "return node == goal or self.graph.follows(node, goal)",
    "return True",
)
fault(
    order,
    "accesses on two streams are in order",
    RUN + "check",
    "not self._path(*pair, paths)",
    "self._path(*pair, paths) and False",
)
fault(
    order,
    "memory that was freed may be written",
    RUN + "_values",
    "fresh or not isinstance(writer, Free)",
    "True",
)
fault(
    order,
    "memory that nobody wrote may be read",
    RUN + "_values",
    "not isinstance(writer, Alloc | Free)",
    "True",
)
fault(
    order,
    "a read may see the write of another",
    RUN + "_values",
    "seen, f",
    "True, f",
)
fault(
    order,
    "a buffer may be read before it is written",
    RUN + "_values",
    "given, f",
    "True, f",
)
fault(
    order,
    "ranks may call other collectives",
    RUN + "__init__",
    "for fault in matching.faults:",
    "for fault in ():",
)


for _name in ("cumsum", "take"):
    _op = REGISTRY[_name]
    fault(
        claims_of_ops,
        f"{_name} uses every entry, whatever its attributes are",
        f"kernel.program.registry:REGISTRY[{_name}]",
        "",
        replace(_op, traits=replace(_op.traits, strict=True)),
    )

ENTRIES = "smt.pointwise:Entries."
EQUAL = "smt.pointwise:"
for name, place, old, new in (
    ("only the first entry is compared", ENTRIES + "index", "at >= 0", "at == 0"),
    ("the last entry is not compared", ENTRIES + "index", "at < extent", "at < extent - 1"),
    ("all entries of a tensor are one", ENTRIES + "_free", "if n != 1]", "if n > 99]"),
    ("factors of terms are left out", ENTRIES + "read", "ref.coef", "Fraction(1)"),
    ("powers are left out", ENTRIES + "_made_of", "range(k)", "range(1)"),
    ("one is zero", ENTRIES + "_made_of", "Fraction(1)", "Fraction(0)"),
    ("what a guard excludes is assumed", ENTRIES + "function", "if self._conditions else need",
     "if False else need"),
    ("functions with one initial are one", ENTRIES + "function", "smt.function(name,",
     "smt.function(name[:1],"),
    ("casts to integers keep a number", ENTRIES + "cast",
     'self.function("truncate" if to != "u8" else "truncate to u8", "", x)', "x"),
    ("casts to bool keep a number", ENTRIES + "cast", "_flag(x != 0)", "x"),
    ("any factor leaves a maximum", ENTRIES + "fold", "and by != 1", "and False"),
    ("a fold of any fold is one fold", ENTRIES + "fold", "inner.kind == kind", "True"),
    ("a sum of a number is that number", ENTRIES + "fold", "by *= n if", "by *= 1 if"),
    ("folds of anything are written alike", ENTRIES + "_folded", ".eq(other.body)",
     ".sort().eq(other.body.sort())"),
    ("sums and maxima are written alike", ENTRIES + "_folded", "fold.kind == other.kind and ", ""),
    ("sums and maxima of equal entries are equal", EQUAL + "_alike",
     "fold.kind == other.kind and ", ""),
    ("folds of entries that differ are equal", EQUAL + "_alike", "if smt.simplifies(goal):",
     "if True:"),
    ("every block begins where the first does", EQUAL + "_blocks", "index + start", "index"),
    ("a fold is its first blocks", EQUAL + "_blocks", "while start < extent:",
     "while 2 * start < extent:"),
    ("one place stands for all", EQUAL + "_reshaped", "_scaled(flat, shape[c])", "flat"),
    ("permuted dims are where they were", ENTRIES + "applied",
     'for p, d in zip(place, attrs["dims"], strict=True)', "for d, p in enumerate(place)"),
    ("the step of a slice is left out", ENTRIES + "applied", "_scaled(place[dim], step)",
     "place[dim]"),
    ("padding is at the end", ENTRIES + "applied", '-attrs["lo"]', "0"),
    ("parts lie on each other", ENTRIES + "applied", "before += part[0][dim]", "before += 0"),
    ("the first branch is taken", ENTRIES + "applied", "smt.when(holds, then, otherwise)", "then"),
    ("the second factor is transposed", ENTRIES + "applied", "(*place[:-2], *k, place[-1])",
     "(*place[:-2], place[-1], *k)"),
    ("a minimum is a maximum", ENTRIES + "_mapped", "args[0] <= args[1], args[0]",
     "args[0] >= args[1], args[0]"),
    ("the largest is the smallest", EQUAL + "_largest", "out >= part", "out <= part"),
    ("contradictions show anything", EQUAL + "_asked",
     '"open" if isinstance(solver.consistent(), smt.Invalid) else "shown"', '"shown"'),
    ("the result may have no value", EQUAL + "_asked", "entries.asking = False",
     "entries.asking = True"),
    ("terms that no form shows are looked into", EQUAL + "_arbitrary", "id not in seen", "False"),
    ("what is open is shown", EQUAL + "_asked", 'certain else "open"', 'certain else "shown"'),
):  # fmt: skip
    fault(equal_terms, name, place, old, new)
for name, law in (
    ("exp", lambda x, y: y == x + 1),
    ("sigmoid", lambda x, y: y + y == 1),
    ("relu", lambda x, y: y == x),
    ("abs", lambda x, y: y == x),
    ("rsqrt", lambda x, y: y * x == 1),
):
    fault(equal_terms, f"another axiom of {name}", f"smt.pointwise:AXIOMS[{name}]", "", law)
for name, place, old, new in (
    ("goals are written as they are", "_smtlib", "(not {goal.sexpr()})", "{goal.sexpr()}"),
    ("premises are not written", "_smtlib", "enumerate(premises)]", "enumerate(premises[:0])]"),
    (
        "what the simplifier closes is not written",
        "simplifies",
        "_record((), goal, Valid())",
        "pass",
    ),
    ("an open goal is written as discharged", "_record", 'Invalid: "sat"', 'Invalid: "unsat"'),
):
    fault(obligations, name, f"smt.solver:{place}", old, new)
