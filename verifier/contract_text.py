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

Inputs and outputs that are not mentioned are replicated. `#` starts a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from verifier.contract import Balanced, Contract, ContractError, output_key
from verifier.ir.errors import IRError, MalformedError
from verifier.ir.jsondata import parse
from verifier.ir.program import Program
from verifier.ir.text import parse_text
from verifier.ir.types import Mesh
from verifier.ir.where import Where, ranks_where, show
from verifier.layout import Atom, Layout, from_placements, normal
from verifier.ops import lookup

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
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip() in ("given", "taken")]
    programs: dict[str, Program] = {}
    for start, end in pairwise([*starts, len(lines)]):
        kind = lines[start].strip()
        if kind in programs:
            raise MalformedError(f"two {kind} programs", where=f"{filename}:{start + 1}")
        body = "\n" * (start + 1) + "\n".join(lines[start + 1 : end])
        programs[kind] = parse_text(body, filename)
        _clean(programs[kind], kind, f"{filename}:{start + 1}")
    given, taken = programs.get("given"), programs.get("taken")
    reader = _Reader(sequential, distributed, given, taken)
    for number, line in enumerate(lines[: starts[0] if starts else len(lines)], 1):
        words = line.partition("#")[0].strip()
        if words and words != "contract":
            try:
                reader.line(words)
            except (ValueError, KeyError) as error:
                said = error.args[0] if error.args else str(error)
                raise MalformedError(str(said), where=f"{filename}:{number}") from None
    return Stated(reader.contract(), given, taken)


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
    data = parse(text, name)
    try:
        return Stated(Contract.from_json(data))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MalformedError(
            "no contract", where=name, expected='{"inputs": {name: layout}, "outputs": ...}'
        ) from None


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


class _Reader:
    def __init__(
        self,
        sequential: Program,
        distributed: Program,
        given: Program | None,
        taken: Program | None,
    ) -> None:
        self.sequential, self.distributed, self.mesh = sequential, distributed, distributed.mesh
        self.inputs = {i.name: i.type.shape for i in sequential.inputs}
        self.outputs = {output_key(o): sequential.types[o.value].shape for o in sequential.outputs}
        self.layouts: dict[str, Layout] = {}
        self.balanced: list[Balanced] = []
        self.held: dict[str, Where] = {}
        self.wanted: dict[str, Where] = {}
        for program, name in ((given, "given"), (taken, "taken")):
            if program is not None and program.mesh != distributed.mesh:
                raise ContractError(f"the {name} program is on another mesh: {program.mesh}")

    def line(self, words: str) -> None:
        kind, _, rest = words.partition(" ")
        if kind == "balanced":
            self._balance(rest)
            return
        if kind not in ("input", "output"):
            raise ValueError(f"{kind!r}; expected input, output, balanced, given or taken")
        name, _, placed = rest.strip().partition(" ")
        key, shape = self._shape(kind, name)
        if f"{kind} {key}" in self.layouts:
            raise ValueError(f"{kind} {name} is laid out twice")
        match = re.search(r"\bon\(([^)]*)\)\s*$", placed)
        if match:
            placed = placed[: match.start()]
            (self.held if kind == "input" else self.wanted)[key] = self._where(match.group(1))
        self.layouts[f"{kind} {key}"] = read_layout(placed.strip(), shape, self.mesh)

    def contract(self) -> Contract:
        inputs = {
            n: self.layouts.get(f"input {n}", Layout.replicate(s)) for n, s in self.inputs.items()
        }
        outputs = {
            k: self.layouts.get(f"output {k}", Layout.replicate(s)) for k, s in self.outputs.items()
        }
        return Contract(inputs, outputs, tuple(self.balanced), (), self.held, self.wanted)

    def _shape(self, kind: str, name: str) -> tuple[str, tuple[int, ...]]:
        if kind == "input":
            name = name.removeprefix("%")
            if name not in self.inputs:
                known = ", ".join(self.inputs)
                raise ValueError(f"the one-device program has no input {name}; it has {known}")
            return name, self.inputs[name]
        found = [k for k in self.outputs if k == name or k.partition(":")[2] == name]
        if len(found) != 1:
            known = ", ".join(self.outputs)
            raise ValueError(f"{len(found) or 'no'} outputs are named {name}; there are {known}")
        return found[0], self.outputs[found[0]]

    def _balance(self, rest: str) -> None:
        value, _, more = rest.strip().partition(" ")
        mesh_dim, _, why = more.strip().partition(" ")
        value = value.removeprefix("%")
        if value not in self.sequential.types or mesh_dim not in self.mesh:
            raise ValueError("expected: balanced VALUE MESH_DIM WHAT")
        self.balanced.append(Balanced(value, mesh_dim, why.strip() or f"%{value}"))

    def _where(self, text: str) -> Where:
        chosen: dict[str, list[int]] = {}
        for name, one, several in re.findall(r"([\w.]+)\s*=\s*(?:(\d+)|\[([\d,\s]*)\])", text):
            chosen[name] = [int(c) for c in (one or several).split(",") if c.strip()]
        if not chosen:
            raise ValueError(f"on({text}): expected coordinates such as on(pp=0)")
        return ranks_where(self.mesh, chosen)


def read_layout(text: str, shape: tuple[int, ...], mesh: Mesh) -> Layout:
    """The layout of a tensor of `shape` as a contract writes it: `tp=S(0)`, or atoms `[8][2@tp 4]`.

    Raises:
        ValueError: neither form, a dim that the mesh does not have, or an extent not divided.
    """
    if text.startswith("["):
        found = re.findall(r"\[([^]]*)\]", text)
        layout = Layout(tuple(normal(_dim(d)) for d in found))
        rest = re.sub(r"\[[^]]*\]", " ", text).split()
        pending = [(n, p) for n, _, p in (item.partition("=") for item in rest)]
        folds = [(n, p[2:-1] if "(" in p else "sum") for n, p in pending]
        return layout.with_partial(folds) if folds else layout
    chosen: dict[str, str] = {}
    for item in text.split():
        name, equals, placement = item.partition("=")
        if not equals or name not in mesh:
            dims = ", ".join(mesh.names) or "no dims"
            raise ValueError(f"placement {item!r}; expected such as tp=S(0); the mesh has {dims}")
        if name in chosen:
            raise ValueError(f"{name} is placed twice")
        chosen[name] = placement
    return from_placements(shape, [(n, mesh[n], chosen.get(n, "R")) for n in mesh.names])


def _dim(text: str) -> list[Atom]:
    atoms: list[Atom] = []
    for item in text.replace(",", " ").split():
        size, _, name = item.partition("@")
        if not size.isdigit():
            raise ValueError(f"atom {item!r}; expected such as 4 or 2@tp")
        atoms.append(Atom(int(size), name or None))
    return atoms


def _renamed(program: Program, prefix: str, keep: dict[str, str]) -> Program:
    """The program with its values named apart, but for those that `keep` names."""

    def name(value: str) -> str:
        return keep.get(value, f"{prefix}{value}")

    return replace(
        program,
        inputs=tuple(replace(i, name=name(i.name)) for i in program.inputs),
        nodes=tuple(
            replace(
                n,
                inputs=tuple(map(name, n.inputs)),
                outputs=tuple(map(name, n.outputs)),
            )
            for n in program.nodes
        ),
        outputs=tuple(replace(o, value=name(o.value)) for o in program.outputs),
        types={name(v): t for v, t in program.types.items()},
    )


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
    second = _renamed(program, "", {**clash, **made})
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
