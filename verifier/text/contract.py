"""The text form of contracts: what people write beside two programs.

    input x  tp=S(1)                  placements by mesh dim; R where nothing is said
    input w  [3 2@tp 4][8]            or dims as ordered atoms, some bound to a mesh dim
    input b  on(pp=0)                 the ranks that are given it
    output y  tp=S(0) on(pp=1)        by path, or by role and path: `output loss:loss`
    balanced count dp labels          assume: the value %count of the one-device program has equal
                                      parts along dp
    given                             a program that makes inputs of the distributed program from
    program ...                       pieces of the one-device inputs, by views and collectives
    taken                             a program that makes the one-device outputs from outputs of
    program ...                       the distributed program

One statement a line, and every line is read to its end:

    line       = "input" name layout [ranks] | "output" name layout [ranks]
               | "balanced" name dim words | "given" | "taken"
    layout     = {dim "=" placement} | dims {dim "=" pending}
    placement  = "R" | "S(" number ")" | pending | "Replicate" | "Shard(" number ")"
    pending    = "R" | "P" | "P(sum)" | "P(max)" | "P(min)", or Partial for P
    dims       = "[" {number ["@" dim]} "]" {"[" {number ["@" dim]} "]"}
    ranks      = "on(" dim "=" coords {"," dim "=" coords} ")"
    coords     = number | "[" number {"," number} "]"

A name has no blanks, or is a string literal; so is a mesh dim that is no word. `#` starts a
comment. An input that is not mentioned is given whole to every rank; of an output that is not
mentioned every rank must hold the whole.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from shardproof.verifier.kernel.contract import Balanced, Contract, ContractError, fits, output_key
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.errors import IRError, MalformedError
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, ranks_where, show
from shardproof.verifier.text.jsonio import parse
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.text.tokens import STRING, WORD, unquote

CLEAN = frozenset({"view", "create", "collective", "movement"})
"""Kinds of ops that rearrange and combine, and compute nothing else."""


@dataclass(frozen=True)
class Stated:
    """A contract as written: with the programs that prepare inputs and read outputs."""

    contract: Contract
    given: Program | None = None
    taken: Program | None = None


def read_contract(
    text: str, sequential: Program, distributed: Program, filename: str = "<contract>"
) -> Stated:
    """Read the text form.

    Raises:
        MalformedError: one message with file and line.
    """
    lines = text.split("\n")
    bare = [line.partition("#")[0].strip() for line in lines]
    starts = [i for i, line in enumerate(bare) if line in ("given", "taken")]
    programs: dict[str, Program] = {}
    for start, end in pairwise([*starts, len(lines)]):
        kind, where = bare[start], f"{filename}:{start + 1}"
        if kind in programs:
            raise MalformedError(f"two {kind} programs", where=where)
        body = "\n" * (start + 1) + "\n".join(lines[start + 1 : end])
        programs[kind] = parse_text(body, filename)
        _clean(programs[kind], kind, where)
        if programs[kind].mesh != distributed.mesh:
            raise MalformedError(
                f"the {kind} program is on another mesh",
                where=where,
                expected=str(distributed.mesh) or "no mesh",
                got=str(programs[kind].mesh) or "no mesh",
            )
    reader = _Reader(sequential, distributed.mesh)
    for number, line in enumerate(lines[: starts[0] if starts else len(lines)], 1):
        if bare[number - 1]:
            reader.statement(_Line(line, f"{filename}:{number}"))
    return Stated(reader.contract(), programs.get("given"), programs.get("taken"))


def load_contract(path: str | Path, sequential: Program, distributed: Program) -> Stated:
    """The contract in a file: JSON where it opens with a brace, else text.

    Raises:
        MalformedError: a file that cannot be read, or holds no contract.
    """
    name = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise MalformedError("no UTF-8", where=name, hint="save the file as UTF-8") from None
    except OSError as error:
        raise MalformedError(f"cannot be read: {error.strerror or error}", where=name) from None
    if not text.lstrip().startswith("{"):
        return read_contract(text, sequential, distributed, name)
    at = Cursor(parse(text, name), name)
    contract = Contract.from_json(at.value, name)
    _fitting(at, contract, sequential, distributed.mesh)
    return Stated(contract)


def compose(distributed: Program, stated: Stated) -> tuple[Program, Contract]:
    """The distributed program between its `given` and its `taken` program.

    Raises:
        ContractError: they do not fit together, or values are named as those of a contract are.
    """
    program = distributed
    mixed = stated.given is not None or stated.taken is not None
    if mixed and (odd := sorted(v for v in program.types if v.startswith(("given.", "taken.")))):
        raise ContractError(
            f"the program names a value %{odd[0]}; given. and taken. are how the values of the "
            "contract's own programs are named: give it another name"
        )
    if stated.given is not None:
        program = _before(stated.given, program)
    if stated.taken is not None:
        program = _after(program, stated.taken)
    return program, stated.contract


def _clean(program: Program, kind: str, where: str) -> None:
    for _, node in program.walk():
        if lookup(node.op).kind not in CLEAN:
            raise MalformedError(
                f"the {kind} program computes {node.op}",
                where=where,
                expected="views, concatenations, slices, padding and collectives only",
            )


def _fitting(at: Cursor, contract: Contract, sequential: Program, mesh: Mesh) -> None:
    """Each entry of a contract in JSON speaks of what the programs have. Raises MalformedError."""
    shapes = _shapes(sequential)
    for kind, laid, places in (
        ("input", contract.inputs, contract.held),
        ("output", contract.outputs, contract.wanted),
    ):
        entries, held = at[f"{kind}s"], "held" if kind == "input" else "wanted"
        for name, item in (*entries.entries(), *at.get(held, {}).entries()):
            if name not in shapes[kind]:
                known = ", ".join(shapes[kind]) or "none"
                raise item.fail(f"the one-device program has no {kind} {name}; it has {known}")
            if name not in laid:
                raise item.fail(f"ranks of an {kind} that is not laid out")
            try:
                fits(kind, name, laid[name], shapes[kind][name], mesh, places.get(name, EVERYWHERE))
            except ContractError as error:
                raise item.fail(str(error)) from None
        for name in shapes[kind]:
            if name not in laid:
                raise entries.fail(f"nothing is said of the {kind} {name}")
    for item, assumed in zip(at.get("balanced", []).items(), contract.balanced, strict=True):
        known = all(name in mesh for name in assumed.mesh_dims)
        if assumed.value not in sequential.types or not known:
            raise item.fail(
                "no assumption", "a value of the one-device program and a dim of the mesh"
            )


def _shapes(sequential: Program) -> dict[str, dict[str, tuple[int, ...]]]:
    """Shapes of the inputs by name, and of the outputs by key."""
    types = sequential.types
    return {
        "input": {i.name: i.type.shape for i in sequential.inputs},
        "output": {output_key(o): types[o.value].shape for o in sequential.outputs},
    }


_GAP = re.compile(r"[ \t\r]*(?:#.*)?")
_KIND = re.compile(r"(?:input|output|balanced)(?=\s|$)")
_NAME = re.compile(rf'%?{STRING}|[^\s"]\S*')
_MESH_DIM = re.compile(rf"{STRING}|{WORD.pattern}")
_NUMBER = re.compile(r"[0-9]{1,18}(?![0-9])")
_PLACEMENT = re.compile(r"[A-Za-z]+(?:\([^()\s]*\))?")
_WORDS = re.compile(r"[^#]*")
_RANKS = re.compile(r"on[ \t]*\(")


class _Line:
    """A cursor over one line. Every reader raises MalformedError on other text."""

    def __init__(self, text: str, where: str = "") -> None:
        self.text, self.where, self.at = text, where, 0
        self._skip(0)

    def _skip(self, at: int) -> None:
        gap = _GAP.match(self.text, at)
        self.at = gap.end() if gap else at

    @property
    def ended(self) -> bool:
        return self.at == len(self.text)

    def fail(self, what: str, expected: str = "", at: int | None = None) -> MalformedError:
        start = self.at if at is None else at
        got = repr(self.text[start : start + 40].rstrip()) if start < len(self.text) else "the end"
        where = f"{self.where}:{start + 1}" if self.where else ""
        return MalformedError(what, where=where, expected=expected, got=got)

    def accept(self, form: re.Pattern[str] | str) -> str:
        """Consume what is next, if it is of this form; else nothing."""
        pattern = re.compile(re.escape(form)) if isinstance(form, str) else form
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self._skip(found.end())
        return found.group()

    def take(self, form: re.Pattern[str] | str, what: str, expected: str) -> str:
        start, found = self.at, self.accept(form)
        if not found:
            raise self.fail(what, expected)
        if not found.removeprefix("%").startswith('"'):
            return found
        try:
            return unquote(found.removeprefix("%"))
        except MalformedError:
            raise self.fail("string with a bad escape", at=start) from None

    def name(self, what: str) -> str:
        return self.take(_NAME, what, "a name").removeprefix("%")

    def number(self, what: str) -> int:
        return int(self.take(_NUMBER, what, "a number of at most 18 digits"))

    def mesh_dim(self, what: str, mesh: Mesh, free: Mapping[str, object] | None = None) -> str:
        """A dim of the mesh, and none of those that are not free any more."""
        start = self.at
        known = f"a dim of the mesh ({mesh or 'none: one device'})"
        name = self.take(_MESH_DIM, what, known)
        if name not in mesh:
            raise self.fail(what, known, start)
        if free is not None and name in free:
            raise self.fail(f"{name} is placed twice", "each mesh dim once", start)
        return name

    def end(self, expected: str) -> None:
        if not self.ended:
            raise self.fail("text that is not understood", expected)


class _Reader:
    """What the statements of a contract say."""

    def __init__(self, sequential: Program, mesh: Mesh) -> None:
        self.sequential, self.mesh = sequential, mesh
        self.shapes = _shapes(sequential)
        self.laid: dict[str, dict[str, Layout]] = {"input": {}, "output": {}}
        self.ranks: dict[str, dict[str, Where]] = {"input": {}, "output": {}}
        self.balanced: list[Balanced] = []

    def statement(self, line: _Line) -> None:
        """Raises MalformedError."""
        kind = line.take(_KIND, "a statement", "input, output, balanced, given or taken")
        if kind == "balanced":
            self._balance(line)
        else:
            self._lay_out(line, kind)

    def contract(self) -> Contract:
        laid = {
            kind: {n: self.laid[kind].get(n, Layout.replicate(s)) for n, s in shapes.items()}
            for kind, shapes in self.shapes.items()
        }
        balanced = tuple(self.balanced)
        return Contract(
            laid["input"], laid["output"], balanced, (), self.ranks["input"], self.ranks["output"]
        )

    def _lay_out(self, line: _Line, kind: str) -> None:
        start = line.at
        key = self._key(line, kind)
        if key in self.laid[kind]:
            raise line.fail(f"{kind} {key} is laid out twice", at=start)
        shape = self.shapes[kind][key]
        layout = _layout(line, shape, self.mesh)
        where = _ranks(line, self.mesh) if line.accept(_RANKS) else EVERYWHERE
        line.end("placements such as tp=S(0), then on(...), then the end of the line")
        try:
            fits(kind, key, layout, shape, self.mesh, where)
        except ContractError as error:
            raise line.fail(str(error), at=start) from None
        self.laid[kind][key] = layout
        if where:
            self.ranks[kind][key] = where

    def _key(self, line: _Line, kind: str) -> str:
        """The input's name or the output's key that a name in the text stands for."""
        start = line.at
        name = line.name(f"name of an {kind}")
        known = self.shapes[kind]
        found = [k for k in known if k == name]
        if kind == "output" and not found:
            found = [k for k in known if k.partition(":")[2] == name]
        if len(found) != 1:
            many = f"{len(found)} {kind}s are" if found else f"the one-device program has no {kind}"
            expected = f"one of {', '.join(known) or 'none'}"
            raise line.fail(f"{many} {name}", expected, start)
        return found[0]

    def _balance(self, line: _Line) -> None:
        start = line.at
        value = line.name("value that is balanced")
        if value not in self.sequential.types:
            raise line.fail(f"the one-device program has no value %{value}", at=start)
        what = f"mesh dim along which %{value} is balanced"
        mesh_dim = line.mesh_dim(what, self.mesh)
        while line.accept(","):
            mesh_dim += f",{line.mesh_dim(what, self.mesh)}"
        if not line.ended and not line.text[line.at - 1].isspace():
            raise line.fail("what is balanced", "a blank after the mesh dim")
        why = line.accept(_WORDS).strip()
        self.balanced.append(Balanced(value, mesh_dim, why or f"%{value}"))


def read_layout(text: str, shape: tuple[int, ...], mesh: Mesh) -> Layout:
    """The layout of a tensor of `shape` as a contract writes it: `tp=S(0)`, or atoms `[8][2@tp 4]`.

    Raises:
        ValueError: neither form, a dim that the mesh does not have, or an extent not divided.
    """
    line = _Line(text)
    layout = _layout(line, shape, mesh)
    line.end("placements such as tp=S(0), or atoms such as [8][2@tp 4]")
    return layout


def _layout(line: _Line, shape: tuple[int, ...], mesh: Mesh) -> Layout:
    start, chosen = line.at, dict[str, str]()
    laid: Layout | None = None
    if line.text.startswith("[", line.at):
        dims: list[tuple[Atom, ...]] = []
        while line.accept("["):
            dims.append(normal(_dim(line, mesh, chosen)))
        laid = Layout(tuple(dims))
        if laid.global_shape != shape:
            raise line.fail(f"atoms of a tensor of shape {list(shape)}", at=start)
    while not line.ended and not _RANKS.match(line.text, line.at):
        name = line.mesh_dim("placement", mesh, chosen)
        line.take("=", f"placement over {name}", "such as tp=S(0)")
        at = line.at
        chosen[name] = line.take(_PLACEMENT, f"placement over {name}", "R, S(d), P or P(max)")
        try:
            placed = from_placements(shape, [(name, mesh[name], chosen[name])])
        except ValueError as error:
            raise line.fail(str(error), at=at) from None
        if laid and chosen[name].startswith("S"):
            raise line.fail("a split beside atoms", f"an atom such as {mesh[name]}@{name}", at)
        if laid:
            laid = laid.with_partial((*laid.partial, *placed.partial))
    if laid:
        return laid
    try:
        return from_placements(shape, [(n, mesh[n], chosen.get(n, "R")) for n in mesh.names])
    except ValueError as error:
        raise line.fail(str(error), at=start) from None


def _dim(line: _Line, mesh: Mesh, bound: dict[str, str]) -> list[Atom]:
    """The atoms of one dim, after its bracket. The mesh dims that they bind go to `bound`."""
    atoms: list[Atom] = []
    while not line.accept("]"):
        start = line.at
        size = line.number("an atom")
        if not line.accept("@"):
            atoms.append(Atom(size))
            continue
        name = line.mesh_dim("mesh dim of an atom", mesh, bound)
        if mesh[name] != size:
            raise line.fail(f"an atom of {size} over {name}", f"{mesh[name]}@{name}", start)
        bound[name] = "S"
        atoms.append(Atom(size, name))
    return atoms


def _ranks(line: _Line, mesh: Mesh) -> Where:
    """What follows `on(`."""
    chosen: dict[str, list[int]] = {}
    while not chosen or not line.accept(")"):
        start = line.at
        if chosen:
            line.take(",", "ranks", "a comma, or the closing parenthesis")
        name = line.mesh_dim("mesh dim of on(...)", mesh, chosen)
        line.take("=", f"coordinates of {name}", "such as pp=0 or pp=[0, 1]")
        if line.accept("["):
            coords = [line.number(f"a coordinate of {name}")]
            while not line.accept("]"):
                line.take(",", f"coordinates of {name}", "a comma, or the closing bracket")
                coords.append(line.number(f"a coordinate of {name}"))
        else:
            coords = [line.number(f"a coordinate of {name}")]
        chosen[name] = coords
        try:
            ranks_where(mesh, {name: coords})
        except ValueError as error:
            raise line.fail(str(error), at=start) from None
    return ranks_where(mesh, chosen)


def _renamed(program: Program, prefix: str, keep: Mapping[str, str]) -> Program:
    """The program with its values named apart, but for those that `keep` names."""
    return program.renamed({v: f"{prefix}{v}" for v in program.types} | dict(keep))


def _before(given: Program, program: Program) -> Program:
    made = {o.path: o.value for o in given.outputs}
    theirs = {i.name: i for i in program.inputs}
    for path, value in made.items():
        if path not in theirs:
            raise ContractError(f"the given program makes %{path}, which the program never takes")
        if given.types[value] != theirs[path].type:
            raise ContractError(
                f"the given program makes %{path} as {given.types[value]}, the program takes "
                f"{theirs[path].type}"
            )
    first = _renamed(given, "given.", {i.name: i.name for i in given.inputs})
    made = {o.path: o.value for o in first.outputs}
    taken = {i.name for i in given.inputs}
    clash = {n: f"own.{n}" for n in taken if n in program.types and n not in theirs}
    second = program.renamed({**clash, **made})
    rest = [i for i in second.inputs if i.name not in made.values() and i.name not in taken]
    for item in given.inputs:
        after = theirs.get(item.name)
        if after is None or item.name in made:
            continue
        if item.type != after.type:
            raise ContractError(
                f"%{item.name} has one type in the given program and another after it"
            )
        if item.where != after.where:
            raise ContractError(
                f"%{item.name} is read on {show(item.where) or 'all ranks'} by the given program, "
                f"on {show(after.where) or 'all ranks'} after it"
            )
    try:
        return replace(
            second,
            inputs=(*first.inputs, *rest),
            nodes=(*first.nodes, *second.nodes),
            types={**second.types, **first.types},
        )
    except IRError as error:
        raise ContractError(str(error)) from None


def _after(program: Program, taken: Program) -> Program:
    results = {o.path: o.value for o in program.outputs}
    for item in taken.inputs:
        if item.name not in results:
            raise ContractError(f"the taken program reads %{item.name}, which is never returned")
        if item.type != program.types[results[item.name]]:
            raise ContractError(f"the taken program reads %{item.name} as {item.type}")
    keep = {i.name: results[i.name] for i in taken.inputs}
    last = _renamed(taken, "taken.", keep)
    used = set(keep)
    made = {output_key(o) for o in last.outputs}
    kept = [o for o in program.outputs if o.path not in used and output_key(o) not in made]
    return replace(
        program,
        nodes=(*program.nodes, *last.nodes),
        outputs=(*kept, *last.outputs),
        types={**program.types, **last.types},
    )
