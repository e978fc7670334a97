"""A kernel on a mesh: the script at local extents, with collectives, held against the whole."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from shardproof.synthesis.frontends.tir.errors import TirError, fail
from shardproof.synthesis.frontends.tir.expressions import Value
from shardproof.synthesis.frontends.tir.lift import Collective, LiftResult, lift_text
from shardproof.synthesis.frontends.tir.tree import TIRBuffer, TIRFunc
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract, ContractError
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Verdict

Placements = Mapping[str, Mapping[str, str]]
"""Parameter -> mesh dim -> placement (`R`, `S(0)`, `P`); what is not said is `R`."""


@dataclass(frozen=True)
class Sharded:
    """Both programs and what is asked of them."""

    sequential: LiftResult
    distributed: LiftResult
    contract: Contract

    @property
    def programs(self) -> tuple[Program, Program]:
        return self.sequential.program, self.distributed.program


def layouts_of(func: TIRFunc, mesh: Mesh, placements: Placements) -> dict[str, Layout]:
    """The layout of each parameter.

    Raises:
        TirError: an unknown parameter or mesh dim, or an extent that is not divisible.
    """
    params = {p.name: p for p in func.params}
    place = func.params[0].place
    for name, chosen in placements.items():
        if name not in params:
            known = ", ".join(params)
            fail(place, f"placement of {name}", expected=f"one of {known}")
        for mesh_dim in chosen:
            if mesh_dim not in mesh:
                known = ", ".join(mesh.names) or "none"
                fail(place, f"mesh dim {mesh_dim} of {name}", expected=known)
    out: dict[str, Layout] = {}
    for name, param in params.items():
        chosen = placements.get(name, {})
        try:
            spec = [(n, mesh[n], chosen.get(n, "R")) for n in mesh.names]
            out[name] = from_placements(param.shape, spec)
        except ValueError as error:
            fail(param.place, f"placement of {name}: {error}")
    return out


def local_extents(
    func: TIRFunc, layouts: Mapping[str, Layout], inputs: Collection[str]
) -> dict[str, int]:
    """What each named extent is on one rank, read off the layouts of the inputs, then the outputs.

    Raises:
        TirError: a split extent without a name, or a name that is split in one place only.
    """
    out: dict[str, tuple[int, TIRBuffer]] = {}
    for param in sorted(func.params, key=lambda p: p.name not in inputs):
        local = layouts[param.name].local_shape
        for dim, (size, whole) in enumerate(zip(local, param.shape, strict=True)):
            symbol = param.symbols[dim] if param.symbols else ""
            if not symbol:
                if size != whole and param.name in inputs:
                    fail(
                        param.place,
                        f"dim {dim} of {param.name} is split and its extent has no name",
                        hint="name the extent in the script, or give a script of local extents",
                    )
                continue
            before = out.setdefault(symbol, (size, param))
            if before[0] != size and param.name in inputs:
                fail(
                    param.place,
                    f"extent {symbol} is split differently in {before[1].name} and {param.name}",
                    expected=f"{before[0]}",
                    got=f"{size}",
                    hint="place both the same way, or give a script of local extents",
                )
    return {name: size for name, (size, _) in out.items()}


def shard(
    text: str,
    mesh: Mesh,
    placements: Placements,
    output_placements: Placements | None = None,
    *,
    filename: str = "<tir>",
    func: str | None = None,
    extents: Mapping[str, Value] | None = None,
    inout: Collection[str] = (),
    collectives: Sequence[Collective] = (),
    local_text: str | None = None,
    local_extents_given: Mapping[str, Value] | None = None,
    check: bool = False,
) -> Sharded:
    """Lift the kernel whole and on one rank. See `verify_lifted`."""
    one = lift_text(text, filename, func=func, extents=extents, inout=inout, check=check)
    inputs = {i.name for i in one.program.inputs}
    outputs = {o.path for o in one.program.outputs}
    for name, wanted, known in (
        *((n, "an input", inputs) for n in placements),
        *((n, "an output", outputs) for n in output_placements or {}),
    ):
        if name not in known:
            place = one.func.params[0].place
            expected = f"{wanted}: {', '.join(sorted(known))}"
            fail(place, f"placement of {name}", expected=expected)
    given = layouts_of(one.func, mesh, placements)
    asked = layouts_of(one.func, mesh, output_placements or {})
    both = {**asked, **{n: given[n] for n in inputs}}
    if local_text is None:
        derived: dict[str, Value] = dict(extents or {})
        if local_extents_given is None:
            derived |= local_extents(one.func, both, inputs)
        derived |= local_extents_given or {}
    else:
        derived = dict(local_extents_given or {})
    many = lift_text(
        local_text if local_text is not None else text,
        filename,
        func=func,
        extents=derived,
        inout=inout,
        mesh=mesh,
        collectives=collectives,
    )
    assumed = tuple(dict.fromkeys((*one.assumptions, *many.assumptions)))
    contract = Contract(
        {n: given[n] for n in (i.name for i in one.program.inputs)},
        {f"output:{n}": asked[n] for n in (o.path for o in one.program.outputs)},
        assumptions=assumed,
    )
    return Sharded(one, many, contract)


def verify_lifted(
    text: str,
    mesh: Mesh,
    placements: Placements,
    output_placements: Placements | None = None,
    *,
    filename: str = "<tir>",
    func: str | None = None,
    extents: Mapping[str, Value] | None = None,
    inout: Collection[str] = (),
    collectives: Sequence[Collective] = (),
    local_text: str | None = None,
    local_extents: Mapping[str, Value] | None = None,
    fixes: bool = False,
) -> Verdict:
    """Whether the kernel, run by every rank at local extents, computes what it computes whole.

    Args:
        placements: of the inputs; they also give the local extents of named dims.
        output_placements: how the outputs must be laid out; replicated where not said.
        collectives: run on buffers after the last store to each.
        local_text: the script that ranks run, where it is not the same one at other extents.
        local_extents: extents on a rank, where they do not follow from the placements.

    Raises:
        TirError: a script that cannot be lifted, placements that do not fit it.
    """
    both = shard(
        text,
        mesh,
        placements,
        output_placements,
        filename=filename,
        func=func,
        extents=extents,
        inout=inout,
        collectives=collectives,
        local_text=local_text,
        local_extents_given=local_extents,
    )
    try:
        return verify(Problem(*both.programs, both.contract), fixes=fixes)
    except ContractError as error:
        raise TirError(str(error), where=filename) from None
