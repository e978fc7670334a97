"""Places of the source whose extents differ on a rank, read off a lowered program."""

from shardproof.synthesis.lower import Lowered, Pair
from shardproof.synthesis.planner.plan import CUT, LocalExtent
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.uses import first_row, whole_path
from shardproof.verifier.kernel.layout import Dim


def _without_dp(dim: Dim, dp: str | None) -> tuple[int, int]:
    """(extent on one device of this batch share, local extent)."""
    whole = local = 1
    for atom in dim:
        if atom.mesh_dim != dp or dp is None:
            whole *= atom.size
        if atom.mesh_dim is None:
            local *= atom.size
    return whole, local


def local_extents(
    lowered: Lowered,
    forward: set[tuple[str, str]],
    modules: list[Module],
    tp: str,
    dp: str | None,
) -> tuple[LocalExtent, ...]:
    """Source places of the forward pass whose extents differ on a rank because of tp."""
    leaves = {
        path for m in modules if not (m.holds or m.raw) for path in (m.path, whole_path(m.path))
    }
    found: dict[tuple[str, int, str, tuple[int, ...], str], LocalExtent] = {}
    makers: dict[tuple[str, str], str] = {}
    cuts: dict[tuple[str, int, str, str], dict[int, tuple[int, int]]] = {}
    for pair in lowered.pairs:
        source = pair.one.source
        makers |= {(pair.scope, v): source.module for v in pair.one.outputs}
        maker = makers.get((pair.scope, pair.one.inputs[0]), "") if pair.one.inputs else ""
        if (pair.scope, pair.one.outputs[0]) not in forward or not source.file:
            continue
        if source.module in leaves or pair.one.op not in ("reshape", "expand", "slice"):
            continue
        if whole_path(maker) != maker:
            place = source.file, source.line, source.module, whole_path(maker)
            cuts.setdefault(place, {})[first_row(maker)] = _without_dp(pair.result.dims[-1], dp)
            continue
        sizes = _sizes(pair, dp)
        if sizes is None:
            continue
        whole, local = sizes
        op = "split" if pair.one.op == "slice" else pair.one.op
        key = (source.file, source.line, op, whole, source.module)
        before = tuple(_without_dp(d, dp)[0] for x in pair.operands[:1] for d in x.dims)
        found[key] = LocalExtent(source.file, source.line, op, source.module, whole, local, before)
    out = list(found.values())
    for (file, line, module, _), pieces in cuts.items():
        whole, local = zip(*(pieces[at] for at in sorted(pieces)), strict=True)
        if whole != local:
            out.append(LocalExtent(file, line, CUT, module, whole, local))
    return tuple(out)


def _sizes(pair: Pair, dp: str | None) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    if pair.one.op == "slice":
        if ".split(" not in pair.one.source.text:
            return None
        dim = pair.one.number("dim")
        whole, local = _without_dp(pair.result.dims[dim], dp)
        return ((whole,), (local,)) if whole != local else None
    rows = [_without_dp(d, dp) for d in pair.result.dims]
    whole = tuple(w for w, _ in rows)
    local = tuple(n for _, n in rows)
    return (whole, local) if whole != local else None
