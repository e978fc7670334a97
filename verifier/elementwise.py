"""Every rank run on expressions, every element of every output compared: no placement rule.

What is found holds for the extents and the mesh at hand, for all float inputs. `decide` compares
canonical forms (`verifier/domains/algebra`) and knows laws of the real functions; `elementwise`
asks Z3, with functions uninterpreted. Both are for small extents: beside the relations where the
deciders are held against each other, and in their place where a program is written so differently
that no relation is found.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import Any, cast

import numpy as np

from verifier import smt
from verifier.contract import Contract, check, output_key
from verifier.domains.algebra import Algebra, Budget, ExceededError, UndefinedError
from verifier.domains.base import Array, Domain, is_index
from verifier.domains.symbolic import Symbolic, equations
from verifier.evaluate import Ranks, Values, evaluate, simulate
from verifier.inline import inline, live
from verifier.ir.program import Program
from verifier.ir.where import EVERYWHERE, members
from verifier.marks import marks
from verifier.refute import elements, index_bounds, refute
from verifier.scatter import copies, gather, piece, scatter
from verifier.smt import Answer
from verifier.verdict import Witness

MAX_ELEMENTS = 60_000
"""Programs that hold more numbers than this are declined unread."""
MAX_CASES = 256
"""So many values of integer inputs are tried, all of them or none."""
SMALL_GOAL = 2_000
"""Characters of a goal that Z3 is asked in a cross-check."""
MASKED = "an entry masked with -10^29 or less has weight 0: all else is small beside a mask"
Z3_SECONDS = 2.0
"""Time after which Z3 is asked no more."""


@dataclass(frozen=True)
class Equal:
    """Every element of every output is equal, for all float inputs in scope."""

    scope: tuple[str, ...]
    forms: dict[str, str]
    """By output key: a digest of the canonical forms of all elements."""
    cases: int = 1
    """Values of the integer inputs that were tried: all there are."""
    assumptions: tuple[str, ...] = ()
    stats: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Differs:
    """An element that differs on plain numbers."""

    output: str
    rank: dict[str, int]
    index: tuple[int, ...]
    witness: Witness


@dataclass(frozen=True)
class Undecided:
    """Neither, and why."""

    reason: str
    output: str = ""
    index: tuple[int, ...] = ()


Decision = Equal | Differs | Undecided


class DisagreementError(RuntimeError):
    """Two deciders gave opposite answers: a fault of the verifier."""


def decide(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    indices: Mapping[str, Array] | None = None,
    *,
    budget: Budget | None = None,
    max_cases: int = MAX_CASES,
    masks: bool = False,
    cross_check: bool = False,
) -> Decision:
    """Whether the programs are equal, element by element, at the extents they have.

    Args:
        indices: values of integer inputs; the answer is then for these values. Integer inputs
            that are not named here are tried with every value in range, or the pair is declined.
        budget: for all values of the integer inputs together.
        masks: take constants of -10^29 and below for minus infinity under exp and max: what is
            masked has weight 0. An `Equal` that used it says so in its assumptions.
        cross_check: ask Z3 about small elements, and the simulation in float64 about all.

    Raises:
        ContractError: a contract that does not fit the programs.
        DisagreementError: a cross-check found what was decided to be wrong.
    """
    check(sequential, distributed, contract)
    sequential, every = live(inline(sequential)), inline(distributed)
    distributed = live(every)
    size = elements(sequential) + elements(distributed, distributed.mesh.size)
    if size > MAX_ELEMENTS:
        return Undecided(f"the programs hold {size} numbers, at most {MAX_ELEMENTS} are compared")
    cases = _cases(sequential, distributed, indices or {}, max_cases)
    if isinstance(cases, Undecided):
        return cases
    begin, left = time.monotonic(), budget or Budget()
    digests = {output_key(o): hashlib.sha256() for o in sequential.outputs}
    terms, masked = 0, False
    for case in cases:
        run = _Run(sequential, distributed, contract, left, masks)
        try:
            found = run.compare(case)
        except ExceededError as error:
            found = Undecided(f"the budget is used up: {error}")
        except UndefinedError as error:
            found = Undecided(str(error))
        if found is not None:
            difference = refute(sequential, every, contract, _fixed(case, indices))
            if difference is None:
                return found
            at = difference.witness
            return Differs(at.output, at.rank, at.index, at)
        for key, text in run.forms.items():
            digests[key].update(text.encode())
        made = run.algebra.table.made
        masked = masked or run.algebra.table.masked
        terms += made
        spent = time.monotonic() - begin
        left = replace(left, terms=left.terms - made)
        left = replace(left, seconds=(budget or Budget()).seconds - spent)
        if cross_check:
            _ask_z3(sequential, distributed, contract, case, Z3_SECONDS / len(cases))
    if cross_check:
        difference = refute(sequential, every, contract, indices)
        if difference is not None:
            raise DisagreementError(
                f"{difference.witness.output} was found equal by its forms, and differs on numbers"
            )
    scope = _scope(sequential, distributed, indices or {})
    stats = {"terms": float(terms), "seconds": time.monotonic() - begin}
    forms = {k: d.hexdigest() for k, d in digests.items()}
    return Equal(scope, forms, len(cases), (MASKED,) if masked else (), stats)


def _scope(
    sequential: Program, distributed: Program, indices: Mapping[str, Array]
) -> tuple[str, ...]:
    bounds, special = index_bounds(sequential), marks(sequential)

    def tried(name: str) -> str:
        top = bounds[name]
        outside = [v for v in sorted(special.get(name, ())) if not 0 <= v < top]
        return " or ".join((f"%{name} in [0, {top})", *map(str, outside)))

    integers = [
        f"%{i.name} as given" if i.name in indices else tried(i.name)
        for i in sequential.inputs
        if not i.type.is_float
        and i.type.dtype != "bool"
        and (i.name in indices or i.name in bounds)
    ]
    return (
        f"mesh {distributed.mesh or 'of one device'}",
        "these extents: " + ", ".join(f"{i.path or i.name} {i.type}" for i in sequential.inputs),
        *([f"integer inputs: {', '.join(integers)}"] if integers else []),
        "equality over the reals, for all inputs and parameters on which one device computes no "
        "infinity and no undefined value",
    )


def _cases(
    program: Program, distributed: Program, indices: Mapping[str, Array], most: int
) -> list[dict[str, Array]] | Undecided:
    """Every value of the integer inputs, or why they are not tried.

    These are the rows that one device looks up, and the marks that it compares them with.
    """
    bounds, special = index_bounds(program), marks(program)
    fixed: dict[str, Array] = {}
    open_: list[tuple[str, tuple[int, ...], list[int], str]] = []
    used = {v for p in (program, distributed) for node in p.nodes for v in node.inputs}
    used |= {out.value for p in (program, distributed) for out in p.outputs}
    keys, unused = _mask_keys(program, distributed), _foreign(program, distributed)
    total = 1
    for item in program.inputs:
        if item.type.is_float:
            continue
        name, kind = item.name, item.type.dtype
        if name in indices:
            array = np.asarray(indices[name])
            fixed[name] = array.astype(bool if kind == "bool" else np.int64)
            continue
        if name not in used:
            fixed[name] = np.zeros(item.type.shape, bool if kind == "bool" else np.int64)
            continue
        if kind != "bool" and name not in bounds and keys.get(name):
            count = item.type.size
            fixed[name] = np.arange(unused, unused + count).reshape(item.type.shape)
            unused += count
            continue
        if kind != "bool" and name not in bounds:
            return Undecided(f"the integer input %{name} has no bound, so not all values are tried")
        values = {*range(2 if kind == "bool" else bounds[name]), *special.get(name, ())}
        total *= len(values) ** item.type.size
        open_.append((name, item.type.shape, sorted(values), kind))
        if total > most or total == 0:
            return Undecided(
                f"the integer inputs up to %{name} have {total} values, at most {most} are tried"
            )
    choices = product(*(vs for _, shape, vs, _ in open_ for _ in range(math.prod(shape))))
    out: list[dict[str, Array]] = []
    for values in choices:
        case, at = dict(fixed), 0
        for name, shape, _, kind in open_:
            count = math.prod(shape)
            entries = np.asarray(values[at : at + count], dtype=np.int64).reshape(shape)
            case[name], at = entries.astype(bool) if kind == "bool" else entries, at + count
        out.append(case)
    return out


def _mask_keys(*programs: Program) -> dict[str, bool]:
    """Inputs whether they do nothing but choose random masks.

    A mask is an unknown function of its key here, so one key that is no other key stands for all.
    """
    out: dict[str, bool] = {}
    for program in programs:
        returned = {o.value for o in program.outputs}
        for item in program.inputs:
            readers = [n for n in program.nodes if item.name in n.inputs]
            alone = all(n.op == "dropout_mask" and n.inputs == (item.name,) for n in readers)
            out[item.name] = out.get(item.name, True) and alone and item.name not in returned
    return out


def _foreign(*programs: Program) -> int:
    """An integer above all that the programs hold."""
    held = [
        abs(int(v))
        for program in programs
        for _, node in program.walk()
        for v in node.attrs.values()
        if isinstance(v, int | Fraction)
    ]
    sizes = [t.size for program in programs for t in program.types.values()]
    return max([*held, *sizes, 1 << 20]) * 2 + 1


def _fixed(case: Mapping[str, Array], indices: Mapping[str, Array] | None) -> dict[str, Array]:
    return {**case, **(indices or {})}


def _all_ranks(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    wholes: Mapping[str, Array],
    domain: Domain,
) -> Ranks:
    """The values of every rank, from pieces of whole inputs."""
    mesh, rng = distributed.mesh, np.random.default_rng(0)
    names = [i.name for i in distributed.inputs]
    pieces = {n: scatter(wholes[n], contract.inputs[n], mesh, domain, rng) for n in names}
    return simulate(
        distributed, [{n: pieces[n][r] for n in names} for r in range(mesh.size)], domain
    )


def _pairs(
    key: str, contract: Contract, distributed: Program, whole: Array, ranks: Ranks, domain: Domain
) -> Iterator[tuple[str, Array, Array]]:
    """What must be equal for one output: (where, on one device, on ranks)."""
    value = next(o.value for o in distributed.outputs if output_key(o) == key)
    layout, mesh = contract.outputs[key], distributed.mesh
    where = contract.wanted.get(key, EVERYWHERE)
    coords, asked = mesh.coords(), members(where, mesh)
    held = [local.get(value, np.zeros(0, dtype=object)) for local in ranks]
    for rank in asked:
        if value not in ranks[rank]:
            raise UndefinedError(f"{key} is asked for on rank {coords[rank]}, which has no value")
    if not layout.partial:
        for rank in asked:
            yield f"on rank {coords[rank]}", piece(whole, layout, coords[rank]), held[rank]
        return
    yield "summed up", whole, gather(held, layout, mesh, domain, where)
    for rank, origin in copies(layout, mesh, where):
        yield f"on rank {coords[rank]}", held[origin], held[rank]


class _Run:
    """Both programs at one value of the integer inputs."""

    def __init__(
        self,
        sequential: Program,
        distributed: Program,
        contract: Contract,
        budget: Budget,
        masks: bool = False,
    ) -> None:
        self.sequential, self.distributed, self.contract = sequential, distributed, contract
        self.algebra = Algebra(budget, masks=masks)
        self.forms: dict[str, str] = {}

    def compare(self, case: Mapping[str, Array]) -> Undecided | None:
        """The first element that is not shown to be equal."""
        algebra, table = self.algebra, self.algebra.table
        wholes = {
            i.name: case[i.name] if i.name in case else algebra.symbols(i.name, i.type.shape)
            for i in self.sequential.inputs
        }
        with table.assuming():
            one = evaluate(self.sequential, wholes, algebra)
        if table.unmet:
            return Undecided(f"the one-device program is never defined: {table.unmet[0]}")
        ranks = _all_ranks(self.sequential, self.distributed, self.contract, wholes, algebra)
        for out in self.sequential.outputs:
            key = output_key(out)
            found = self._output(key, one[out.value], ranks)
            if found is not None:
                return found
            self.forms[key] = self._form(one[out.value])
        if table.unmet:
            return Undecided(
                "the distributed program may be undefined where one device is defined: "
                + table.unmet[0]
            )
        return None

    def _output(self, key: str, whole: Array, ranks: Ranks) -> Undecided | None:
        algebra, table = self.algebra, self.algebra.table
        pairs = _pairs(key, self.contract, self.distributed, whole, ranks, algebra)
        for where, want, have in pairs:
            if want.shape != have.shape:
                return Undecided(f"{key} {where} has shape {have.shape}, not {want.shape}", key)
            if is_index(want) and is_index(have):
                if not np.array_equal(want, have):
                    at = tuple(int(i) for i in np.argwhere(want != have)[0])
                    return Undecided(f"{key}{list(at)} {where} is another integer", key, at)
                continue
            want, have = algebra.lift(want), algebra.lift(have)
            for index in np.ndindex(*want.shape):
                a, b = (cast(Any, side[index]) for side in (want, have))
                if not table.equal(a, b):
                    gap = table.show(table.sub(a, b))
                    reason = f"{key}{list(index)} {where} is not shown to be equal: off by {gap}"
                    return Undecided(reason, key, index)
        return None

    def _form(self, a: Array) -> str:
        if is_index(a):
            return f"{a.shape}:{a.tolist()};"
        table = self.algebra.table
        return f"{a.shape}:{','.join(table.digest(e) for e in a.reshape(-1))};"


# Z3


def elementwise(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    indices: dict[str, Array] | None = None,
    solver: smt.Solver | None = None,
) -> dict[str, Answer]:
    """For each output key: whether it is equal for all float inputs, functions uninterpreted.

    `Invalid` only says that congruence and arithmetic do not give the equality.

    Args:
        indices: values of the integer inputs, which stay concrete.
    """
    domain = Symbolic()
    one, ranks = _on_symbols(sequential, distributed, contract, indices or {}, domain)
    solver = solver or smt.Solver()
    answers: dict[str, Answer] = {}
    for out in sequential.outputs:
        key = output_key(out)
        pairs = _pairs(key, contract, distributed, one[out.value], ranks, domain)
        answers[key] = _all(solver.prove(goal) for _, a, b in pairs for goal in equations(a, b))
    return answers


def _on_symbols(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    indices: Mapping[str, Array],
    domain: Symbolic,
) -> tuple[Values, Ranks]:
    wholes = {
        i.name: indices[i.name] if i.name in indices else domain.symbols(i.name, i.type.shape)
        for i in sequential.inputs
    }
    one = evaluate(sequential, wholes, domain)
    return one, _all_ranks(sequential, distributed, contract, wholes, domain)


def _all(answers: Iterator[Answer]) -> Answer:
    return next((a for a in answers if not isinstance(a, smt.Valid)), smt.Valid())


def _ask_z3(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    case: Mapping[str, Array],
    seconds: float,
) -> int:
    """Hold small elements that were found equal against Z3. Returns how many it confirmed.

    A model counts only where the goal is about the inputs alone, with no function that Z3 knows
    nothing of: then it is a counterexample.

    Raises:
        DisagreementError: it is one.
    """
    domain = Symbolic(("exp", "rsqrt", "reciprocal", "max"))
    one, ranks = _on_symbols(sequential, distributed, contract, case, domain)
    solver, confirmed = smt.Solver(rlimit=200_000, timeout_ms=200), 0
    inputs, deadline = {i.name for i in sequential.inputs}, time.monotonic() + seconds
    for out in sequential.outputs:
        key = output_key(out)
        for where, a, b in _pairs(key, contract, distributed, one[out.value], ranks, domain):
            for goal in equations(a, b):
                text = goal.sexpr()
                if time.monotonic() > deadline:
                    return confirmed
                if len(text) > SMALL_GOAL:
                    continue
                premises = [f for f in domain.facts if len(f.sexpr()) <= SMALL_GOAL][:50]
                with solver.scope(*premises):
                    answer = solver.prove(goal)
                confirmed += isinstance(answer, smt.Valid)
                known = {name.split("[")[0] for name in smt.names(goal)} <= inputs
                if isinstance(answer, smt.Invalid) and known:
                    raise DisagreementError(f"{key} {where}: Z3 has a model in which it differs")
    return confirmed
