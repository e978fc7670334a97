"""The contract between a model and its parallel module: stated, or inferred from shapes alone.

What a rank holds is compared with what the model has: the same shape is a replicated tensor, one
dim divided by the size of one mesh dim is a tensor split there. Anything else must be stated. What
the code does with a tensor is never looked at.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.ranks.pairing import GRAD_OF_INPUT, STATE
from shardproof.synthesis.frontends.torch.ranks.result import Rank, RanksCaptured
from shardproof.synthesis.frontends.torch.ranks.same_states import families
from shardproof.synthesis.frontends.torch.ranks.stated import LayoutLine, layout_for
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, contains, ranks_where, show


@dataclass(frozen=True)
class Placed:
    """How one tensor is laid out, and how that is known."""

    kind: str
    """`parameter`, `buffer`, `input`, `mask` or `output`."""
    name: str
    layout: Layout
    how: str
    """`stated`, `from its placements`, `from its shape` or `by default`."""
    where: Where = EVERYWHERE
    """The ranks that have it."""

    def says(self, mesh: Mesh) -> str:
        """`up.weight [16, 8]: S(0)@tp (from its shape)`."""
        shape = ", ".join(map(str, self.layout.global_shape))
        on = f" on {show(self.where)}" if self.where else ""
        laid = placement(self.layout, mesh)
        return f"{self.kind} {self.name} [{shape}]: {laid}{on} ({self.how})"


def placement(layout: Layout, mesh: Mesh) -> str:
    """`S(0)@tp`, as `--layout` takes it; atoms where no such words say it."""
    words: list[tuple[str, int, str]] = []
    for name, size in mesh.dims:
        folds = dict(layout.partial)
        split = [i for i, dim in enumerate(layout.dims) for a in dim if a.mesh_dim == name]
        word = f"P({folds[name]})" if name in folds else f"S({split[0]})" if split else "R"
        words.append((name, size, word))
    try:
        plain = from_placements(layout.global_shape, words) == layout
    except ValueError:
        plain = False
    if not plain:
        return "".join(f"[{' '.join(map(str, dim)) or 1}]" for dim in layout.dims)
    placed = [f"{word}@{name}" for name, size, word in words if word != "R" and size > 1]
    return ",".join(placed) or "R"


@dataclass(frozen=True)
class Statements:
    """What the user states."""

    params: tuple[LayoutLine, ...] = ()
    inputs: tuple[LayoutLine, ...] = ()
    outputs: tuple[LayoutLine, ...] = ()


def agree(
    captured: RanksCaptured,
    many: Program,
    stated: Statements,
    tables: Mapping[str, str] | None = None,
    masks: Mapping[str, Layout] | None = None,
) -> tuple[Contract, tuple[Placed, ...]]:
    """The contract, and each of its lines with how it is known.

    Args:
        captured: the model and the ranks.
        many: what the ranks run together.
        stated: layouts that the user gives.
        tables: placements of tables that are no parameters, read off their values.
        masks: layouts of what dropout draws.

    Raises:
        InputError: a tensor that shapes alone do not decide, a statement that does not fit what
            the ranks hold or that is about nothing.
        CaptureError: a statement that cannot be read.
    """
    mesh, one = many.mesh, captured.one.program
    placed: list[Placed] = []
    held: dict[str, Where] = {}
    holders: dict[str, Where] = {}
    states = [i.path for i in one.inputs if i.role == "param" and i.path not in captured.one.params]
    kinds = families(states, {name: name for name in captured.one.params})
    owners = {path: param for kind in kinds for param, path in kind.items()}
    for item in one.inputs:
        if item.role != "param":
            continue
        kind = "parameter" if item.path in captured.one.params else "buffer"
        if not any(item.path in r.laid_out for r in captured.ranks):
            whole = Layout.replicate(item.type.shape)
            placed.append(Placed(kind, item.path, whole, "no rank has it"))
            continue
        local = _local(captured, item.path)
        known = _known(captured, kind, item.path)
        where = _holders(captured, item.path, mesh)
        if where:
            held[item.name], holders[item.path] = where, where
        owner = _parameter_of(owners.get(item.path, ""), placed, item.type.shape, local)
        said = any(line.fits(item.path) for line in stated.params)
        if owner is not None and known is None and not said:
            placed.append(Placed(kind, item.path, owner.layout, f"as {owner.name}", where))
            continue
        placed.append(
            replace(
                decide(
                    kind, item.path, item.type.shape, local, known, stated.params, mesh, "--layout"
                ),
                where=where,
            )
        )
    params = {p.name: p for p in placed}
    for item in one.inputs:
        if item.role == "input" and masks and item.path in masks:
            placed.append(Placed("mask", item.path, masks[item.path], "as the ranks draw it"))
        elif item.role == "input":
            shape = item.type.shape
            layout = layout_for(stated.inputs, item.path, shape, mesh)
            how = "stated" if layout is not None else "by default"
            placed.append(Placed("input", item.path, layout or Layout.replicate(shape), how))
    given = {p.name: p for p in placed if p.kind in ("input", "mask")}
    results = {output_key(o): many.types[o.value].shape for o in many.outputs}
    outputs: dict[str, Layout] = {}
    found: dict[str, Placed] = {}
    wanted: dict[str, Where] = {}
    ends = _product(captured, lambda r: bool(r.outputs), "the outputs", mesh)
    for out in one.outputs:
        key, shape = output_key(out), one.types[out.value].shape
        if out.role == "grad":
            whole = out.path.removeprefix(GRAD_OF_INPUT)
            outputs[key] = (given[whole] if whole != out.path else params[out.path]).layout
            if out.path in holders:
                wanted[key] = holders[out.path]
            continue
        kept = out.path.removeprefix(STATE)
        if kept != out.path:
            outputs[key] = params[kept].layout if kept in params else Layout.replicate(shape)
            if kept in holders:
                wanted[key] = holders[kept]
            continue
        if ends:
            wanted[key] = ends
        kind, known = "output", _known(captured, "output", out.path)
        decided = decide(
            kind, out.path, shape, results[key], known, stated.outputs, mesh, "--output-layout"
        )
        placed.append(replace(decided, where=ends))
        found[out.path], outputs[key] = decided, decided.layout
    inputs: dict[str, Layout] = {}
    for item in one.inputs:
        if item.role == "param":
            inputs[item.name] = params[item.path].layout
        elif item.role == "cotangent":
            inputs[item.name] = found[item.path].layout
        elif item.role == "input":
            inputs[item.name] = given[item.path].layout
        else:
            lines = [LayoutLine(n, t, f"table {n}") for n, t in (tables or {}).items()]
            found_table = layout_for(lines, item.name, item.type.shape, mesh)
            inputs[item.name] = found_table or Layout.replicate(item.type.shape)
    _all_used(stated, placed)
    return Contract(inputs, outputs, held=held, wanted=wanted), tuple(placed)


def _parameter_of(
    name: str, placed: Sequence[Placed], shape: tuple[int, ...], local: tuple[int, ...]
) -> Placed | None:
    """The parameter of which something is the state, where it has the same extents."""
    owner = next((p for p in placed if p.name == name and p.kind == "parameter"), None)
    if owner is None:
        return None
    same = owner.layout.global_shape == shape and owner.layout.local_shape == local
    return owner if same else None


def no_rank(path: str) -> InputError:
    """What there is to say of a parameter that no rank has."""
    return InputError(
        f"the model has a parameter {path}, which no rank has",
        hint=f"say which it is: --param NAME={path}",
    )


def untrained(captured: RanksCaptured, path: str) -> InputError:
    """What there is to say of a trained parameter to which no rank gives a gradient."""
    frozen = [k for k, r in captured.numbered if path in r.frozen]
    if not frozen:
        return no_rank(path)
    return InputError(
        f"the model trains the parameter {path}, and the ranks freeze it",
        expected="requires_grad=True, as on one device",
        got=f"requires_grad=False on rank {', '.join(map(str, frozen))}",
        hint="train it on every rank, or freeze it in the model too",
    )


def _local(captured: RanksCaptured, path: str) -> tuple[int, ...]:
    """What each rank holds of a parameter. Raises InputError where they hold different shapes."""
    ranks = {k: r.laid_out for k, r in captured.numbered}
    held = {k: r[path].shape for k, r in ranks.items() if path in r}
    shapes = set(held.values())
    if len(shapes) > 1:
        where, first = next(iter(held.items()))
        rank = next(k for k, shape in held.items() if shape != first)
        other = list(held[rank])
        raise InputError(
            f"ranks hold pieces of {path} of different shapes, which no layout says",
            expected=f"{list(first)}, as on rank {where}",
            got=f"{other} on rank {rank}",
            hint="pad the parameter to a size that divides",
        )
    return shapes.pop()


def _known(captured: RanksCaptured, kind: str, name: str) -> Layout | None:
    """What the placements of a DTensor say. Raises InputError where ranks place it differently."""
    found = {
        k: r.layouts.get(f"{kind} {name}")
        for k, r in captured.numbered
        if (r.outputs if kind == "output" else name in r.laid_out)
    }
    where, first = next(iter(found.items()))
    other = next((k for k, layout in found.items() if layout != first), None)
    if other is not None:
        raise InputError(
            f"ranks place {kind} {name} in different ways",
            expected=f"{first or 'no DTensor'}, as on rank {where}",
            got=f"{found[other] or 'no DTensor'} on rank {other}",
        )
    return first


def _holders(captured: RanksCaptured, path: str, mesh: Mesh) -> Where:
    """The ranks that hold a parameter."""
    return _product(captured, lambda r: path in r.laid_out, f"the parameter {path}", mesh)


def _product(captured: RanksCaptured, has: Callable[[Rank], bool], what: str, mesh: Mesh) -> Where:
    """The ranks that have something as coordinates. Raises InputError where they are no product of
    these."""
    ranks = [k for k, r in captured.numbered if has(r)]
    if len(ranks) in (0, len(captured.ranks)):
        return EVERYWHERE
    coords = [mesh.coords()[rank] for rank in ranks]
    where = ranks_where(mesh, {n: {at[n] for at in coords} for n in mesh.names})
    if sum(contains(where, at) for at in mesh.coords()) != len(ranks):
        raise InputError(
            f"the ranks {list(ranks)} have {what}, which is not a slice of the mesh {mesh}",
            expected="stages that lie along one mesh dim",
        )
    return where


def decide(
    kind: str,
    name: str,
    whole: tuple[int, ...],
    local: tuple[int, ...],
    known: Layout | None,
    lines: Sequence[LayoutLine],
    mesh: Mesh,
    option: str,
) -> Placed:
    """How one tensor is laid out: as its placements say (`known`), as is stated, or as its shape
    on one device and on a rank leave no choice. Raises InputError where none of these says it."""
    over = [line for line in lines if line.over and line.fits(name)]
    layout = layout_for([line for line in lines if not line.over], name, whole, mesh)
    if layout is not None:
        if layout.local_shape != local:
            raise InputError(
                f"{kind} {name} does not have the shape that its layout gives each rank",
                where=next(line.where for line in lines if line.fits(name)),
                expected=str(list(layout.local_shape)),
                got=str(list(local)),
            )
        if known not in (None, layout):
            raise InputError(
                f"{kind} {name} is a DTensor, which is placed in another way than is stated",
                where=next(line.where for line in lines if line.fits(name)),
                expected=placement(known, mesh),
                got=placement(layout, mesh),
                hint="its placements are taken where nothing is stated",
            )
        return Placed(kind, name, layout, "stated")
    if known is not None:
        if known.global_shape != whole:
            raise InputError(
                f"{kind} {name} has shape {list(whole)} on one device and is a DTensor of shape "
                f"{list(known.global_shape)} on the ranks",
                hint="let both have the same",
            )
        return Placed(kind, name, known, "from its placements")
    options = possible(whole, local, mesh)
    if over and len(options) > 1:
        options = [o for o in options if {over[-1].over} == set(o.sharded)]
    if len(options) == 1:
        return Placed(kind, name, options[0], "from its shape")
    shapes = f"{kind} {name} has shape {list(whole)} on one device and {list(local)} on a rank"
    if not options:
        raise InputError(
            f"{shapes}, which is not a split of one dim by one mesh dim",
            expected=f"a layout for it: {option} '{name}=...'",
            hint="for example S(0)@tp, S(0)@dp,S(1)@tp, or atoms: [8][3 2@tp 4]",
        )
    choices = " or ".join(f"{option} '{name}={placement(o, mesh)}'" for o in options)
    raise InputError(
        f"{shapes}: over which mesh dim it is split is not clear",
        expected=choices,
        hint=f"{option} '*=@tp' says of all that are split that it is over tp",
    )


def possible(whole: tuple[int, ...], local: tuple[int, ...], mesh: Mesh) -> list[Layout]:
    """Replicated where the shapes are the same; else every split of one dim by one mesh dim."""
    return [s for s in splits(whole, local, mesh) if len(s.sharded) <= 1]


def splits(whole: tuple[int, ...], local: tuple[int, ...], mesh: Mesh) -> list[Layout]:
    """Every split of dims by mesh dims that gives a rank this shape; replicated where it is the
    same."""
    if len(whole) != len(local):
        return []
    dims = [d for d, (a, b) in enumerate(zip(whole, local, strict=True)) if a != b]
    axes = [(name, size) for name, size in mesh.dims if size > 1]
    out: list[Layout] = []
    for chosen in itertools.product([None, *dims], repeat=len(axes)):
        parts = dict.fromkeys(dims, 1)
        for (_, size), dim in zip(axes, chosen, strict=True):
            if dim is not None:
                parts[dim] *= size
        if all(local[d] * parts[d] == whole[d] for d in dims):
            words = [
                (name, size, f"S({d})")
                for (name, size), d in zip(axes, chosen, strict=True)
                if d is not None
            ]
            out.append(from_placements(whole, words) if words else Layout.replicate(whole))
    return out


def _all_used(stated: Statements, placed: Sequence[Placed]) -> None:
    """A statement about nothing is a mistake."""
    kinds: Mapping[str, tuple[LayoutLine, ...]] = {
        "parameter": stated.params,
        "input": stated.inputs,
        "output": stated.outputs,
    }
    for kind, lines in kinds.items():
        alike = {"input": "mask", "parameter": "buffer"}.get(kind)
        names = [p.name for p in placed if p.kind in (kind, alike)]
        for line in lines:
            if not any(line.fits(name) for name in names):
                raise InputError(
                    f"there is no {kind} {line.pattern}",
                    where=line.where,
                    expected=f"one of {', '.join(names)}",
                )
