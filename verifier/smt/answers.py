"""What is known of the forms that the steps of proofs have, kept from one proof to the next.

An answer is found by the text of its form, and is about one text of the code that gave it: rules,
ops, domains and what makes obligations of a step. Kept with each is one instance of the form, so
that all of them can be asked for again. Reading answers needs no solver.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from shardproof.verifier.kernel.instance import JOINED, Instance, Piece
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.types import Affine, Mesh
from shardproof.verifier.smt.equalities import RESTS, How, Tried, equalities
from shardproof.verifier.smt.forms import Form, form
from shardproof.verifier.smt.instance_json import from_json, to_json
from shardproof.verifier.terms.told import Told

if TYPE_CHECKING:
    from shardproof.verifier.problem import Problem
    from shardproof.verifier.smt.entries import Sides
    from shardproof.verifier.terms import Ref, Terms


def normal_form(instance: Instance) -> Instance:
    """The instance on the mesh dims that it names, called by the order in which they come up."""
    instance = _on_a_rank(instance)
    names = dict.fromkeys(n for n in _named(instance) if n in instance.mesh)
    called = {name: f"m{k}" for k, name in enumerate(names)}
    return renamed(instance, called)


def _on_a_rank(instance: Instance) -> Instance:
    """A step that ranks take on their own says the same of all ranks that hold the operands."""
    if instance.op == JOINED or "mesh_dim" in dict(instance.attrs):
        return instance
    pieces = (*instance.given, instance.made)
    kept = {n for p in pieces for n in p.layout.mentioned}

    def bare(piece: Piece) -> Piece:
        return replace(piece, where=tuple(w for w in piece.where if w[0] in kept))

    return replace(instance, given=tuple(map(bare, instance.given)), made=bare(instance.made))


def renamed(instance: Instance, called: Mapping[str, str]) -> Instance:
    """The instance under other names of mesh dims; those without one are left out of its mesh."""
    mesh = Mesh(tuple((called[n], instance.mesh[n]) for n in called))
    how, *rest = instance.rule.split(":")
    rule = ":".join([how, *(called.get(part, part) for part in rest)])
    attrs = tuple((k, _renamed(k, v, called)) for k, v in instance.attrs)
    given = tuple(_renamed_piece(p, called) for p in instance.given)
    return replace(
        instance,
        rule=rule,
        attrs=attrs,
        given=given,
        made=_renamed_piece(instance.made, called),
        mesh=mesh,
    )


def _named(instance: Instance) -> Iterator[str]:
    for piece in (*instance.given, instance.made):
        for dim in piece.layout.dims:
            yield from (a.mesh_dim for a in dim if a.mesh_dim is not None)
        yield from (name for name, _ in piece.layout.partial)
        yield from (name for name, _ in piece.where)
    yield from instance.rule.split(":")[1:]
    for key, value in instance.attrs:
        if key == "mesh_dim":
            yield from _names(value)
        if isinstance(value, Affine):
            yield from (name for name, _ in value.terms)


def _names(value: Any) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value


def _renamed(key: str, value: Any, called: Mapping[str, str]) -> Any:
    if key == "mesh_dim":
        return called[value] if isinstance(value, str) else tuple(called[n] for n in value)
    if isinstance(value, Affine):
        return Affine.of(value.const, {called[n]: c for n, c in value.terms})
    return value


def _renamed_piece(piece: Piece, called: Mapping[str, str]) -> Piece:
    dims = tuple(
        tuple(Atom(a.size, called[a.mesh_dim] if a.mesh_dim else None) for a in dim)
        for dim in piece.layout.dims
    )
    partial = ((called[name], fold) for name, fold in piece.layout.partial)
    where = tuple(sorted((called[name], at) for name, at in piece.where))
    return replace(piece, layout=Layout(dims).with_partial(partial), where=where)


Conclude = Callable[[Instance, "Sequence[Ref]", "Terms"], "Ref"]
"""What a rule takes the result for. Raises ValueError where it does not accept the step."""
Extent = Literal["all sizes", "small sizes", "rule alone", "not shown", "refuted"]
EXTENTS: tuple[Extent, ...] = get_args(Extent)
UNACCEPTED: dict[Extent, str] = {
    "not shown": "Z3 does not show a rule",
    "refuted": "Z3 refutes a rule",
}
"""Extents of steps on which no certificate is accepted."""
CODE = (
    "checker",
    "domains",
    "kernel",
    "ops",
    "smt",
    "terms",
    "provers/scalars",
    "refute",
)
"""What an answer depends on."""


@dataclass(frozen=True, slots=True)
class Discharged:
    """How far a step was shown."""

    extent: Extent
    queries: int = 0
    """Goals that went to Z3's solver; the others are identities, or closed by its simplifier."""
    why: str = ""
    """Why no further; of what is refuted or not shown, the fault."""


NOTHING = Tried()


@dataclass(frozen=True)
class Summary:
    """How far the steps of one proof were shown."""

    instances: int
    forms: int
    counts: dict[Extent, int]
    """Of forms."""
    queries: int
    """Forms of which a goal went to the solver."""
    asked: int
    """Forms that no answer was kept of."""
    faults: tuple[str, ...] = ()
    """What is refuted, or not shown."""
    terms: Tried = NOTHING
    """On what the equal terms rest."""

    def __str__(self) -> str:
        told = [f"{self.counts[e]} {_SAID[e]}" for e in EXTENTS if self.counts.get(e)]
        if not told:
            return f"no steps; {self.terms}"
        how = f"{self.queries} by Z3's solver, the others by simplification"
        return f"{self.forms} forms of steps: {', '.join(told)} ({how}); {self.terms}"


_SAID: dict[Extent, str] = {
    "all sizes": "shown for all sizes",
    "small sizes": "shown at small sizes",
    "rule alone": "by rule alone",
    "not shown": "not shown",
    "refuted": "refuted",
}


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer, and an instance of the form that it is about."""

    answer: Discharged
    instance: dict[str, Any]
    """As JSON."""


class Collected(Protocol):
    """The steps of one proof."""

    tables: list[Terms]
    """Of terms."""

    def instances(self) -> list[Instance]: ...


@dataclass
class Answers:
    """Answers by form, in memory and, where a path is given, in a file."""

    path: Path | None = None
    known: dict[str, Kept] = field(default_factory=dict[str, "Kept"])
    equal: dict[str, How] = field(default_factory=dict[str, How])
    """Forms of equal terms that are not refuted: on what each rests."""
    classes: dict[str, How] = field(default_factory=dict[str, How])
    """Classes of equal entries, likewise."""
    compared: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By programs that were compared on numbers or entry by entry, the classes of entries."""

    def __post_init__(self) -> None:
        self._read()

    def table(self) -> Terms:
        """A table of terms that remembers what it is asked for."""
        return Told()

    def differ(self, about: str, problem: Problem) -> str:
        """Where programs differ on numbers, large ones at small extents; `about` says which."""
        from shardproof.verifier.refute.search import SMALL, differ, elements_of

        if elements_of(problem.sequential, problem.distributed) <= SMALL:
            return differ(problem)
        if (key := f"small {about}") not in self.compared:
            from shardproof.verifier.refute.scale_down.refuting import differ_resized

            if why := differ_resized(problem):
                return why
            self.compared[key] = []
            self._write()
        return ""

    def entries(self, about: str, sides: Sides) -> Tried:
        """On what single entries rest that must be equal; `about` says of which programs."""
        wrong = ""
        if about not in self.compared:
            from shardproof.verifier.smt.entries import identities

            found, wrong = identities(sides, self.classes)
            if not wrong:
                self.compared[about] = found
                self._write()
        keys = self.compared.get(about, [])
        return Tried(Counter(self.classes.get(key, "numbers") for key in keys), wrong)

    def settle(self, steps: Collected, conclude: Conclude) -> Summary:
        """Answers of all instances; those that are not known are asked for, and kept."""
        instances = list(dict.fromkeys(map(normal_form, steps.instances())))
        forms: dict[str, Form] = {}
        for instance in instances:
            found = form(instance)
            forms.setdefault(_key(found), found)
        new = [key for key in forms if key not in self.known]
        if new:
            from shardproof.verifier.smt.discharge import discharge

            for key in new:
                answer = discharge(forms[key], conclude)
                self.known[key] = Kept(answer, to_json(forms[key].instance))
        before = len(self.equal)
        tables = (table for table in steps.tables if isinstance(table, Told))
        tried = equalities(tables, self.equal)
        if new or len(self.equal) > before:
            self._write()
        answers = [self.known[key].answer for key in forms]
        counts = Counter[Extent](one.extent for one in answers)
        wrong = tuple(
            f"{UNACCEPTED[one.extent]}: {one.why}" for one in answers if one.extent in UNACCEPTED
        )
        asked = sum(one.queries > 0 for one in answers)
        return Summary(
            len(instances),
            len(forms),
            dict(counts),
            asked,
            len(new),
            wrong,
            tried,
        )

    def again(self, conclude: Conclude) -> list[Instance]:
        """Ask for every answer anew: instances of which another is given now."""
        from shardproof.verifier.smt.discharge import discharge

        wrong: list[Instance] = []
        for key, kept in self.known.items():
            instance = from_json(Cursor(kept.instance, "instance"))
            found = form(instance)
            if _key(found) != key or discharge(found, conclude) != kept.answer:
                wrong.append(instance)
        return wrong

    def _read(self) -> None:
        """Adds what a file says: nothing where it is about other code, damaged or not there."""
        if self.path is None:
            return
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            data: Any = json.loads(self.path.read_text(encoding="utf-8"))
            if data["code"] != code():
                return
            found = {
                str(key): Kept(Discharged(extent, int(queries), str(why)), dict(instance))
                for key, (extent, queries, why, instance) in data["answers"].items()
                if extent in EXTENTS
            }
            equal, classes = (_rests(data[kind]) for kind in ("equal", "classes"))
            compared = {str(about): [*map(str, keys)] for about, keys in data["compared"].items()}
            self.known, self.equal = found | self.known, equal | self.equal
            self.classes, self.compared = classes | self.classes, compared | self.compared

    def _write(self) -> None:
        """A file that cannot be written is left as it is: the answers are asked for again."""
        if self.path is None:
            return
        self._read()
        rows = {
            key: [one.answer.extent, one.answer.queries, one.answer.why, one.instance]
            for key, one in self.known.items()
            if one.answer.extent not in UNACCEPTED
        }
        told = {"code": code(), "answers": rows, "equal": self.equal, "classes": self.classes}
        told |= {"compared": self.compared}
        with contextlib.suppress(OSError):
            _replace(self.path, json.dumps(told))


def _rests(said: dict[str, str]) -> dict[str, How]:
    return {key: how for key, told in said.items() for how in RESTS if how == told}


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _key(found: Form) -> str:
    return hashlib.sha256(str(found).encode()).hexdigest()[:32]


@cache
def code() -> str:
    """A digest of all that an answer depends on: files of the verifier, and Z3."""
    root = Path(__file__).resolve().parent.parent
    seen = hashlib.sha256()
    for part in CODE:
        for path in sorted((root / part).rglob("*.py")) or [root / part]:
            seen.update(str(path.relative_to(root)).encode())
            seen.update(hashlib.sha256(path.read_bytes()).digest())
    with contextlib.suppress(PackageNotFoundError):
        seen.update(version("z3-solver").encode())
    return seen.hexdigest()
