"""Module paths of a plan as a patch writes them: runs of a list written out, whole lists as `*`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.frontends.torch.rolling.paths import members
from shardproof.synthesis.planner.plan import ARGUMENT, LocalExtent, ModulePlan, Plan

_Item = TypeVar("_Item", ModulePlan, LocalExtent)


def spelled(facts: ModelFacts, plan: Plan) -> Plan:
    """The plan without runs of lists such as `layers.[0:4:2]`, which PyTorch does not know.

    Where all entries of such a list are planned alike, they are one `*` again.
    """
    modules = [m for m in plan.modules for m in _each(facts, m)]
    told = (*plan.local_extents, *plan.arguments)
    extents = [replace(e, module=p) for e in told for p in members(e.module)]
    paths = [*(m.path for m in plan.modules), *(e.module for e in told)]
    for run in sorted({path.partition(".[")[0] for path in paths if ".[" in path}):
        size = _entries(facts, run)
        modules = _merged(modules, [m.path for m in modules], run, size)
        extents = _merged(extents, [e.module for e in extents], run, size)
    taken = tuple(e for e in extents if e.op == ARGUMENT)
    local = tuple(e for e in extents if e.op != ARGUMENT)
    return replace(plan, modules=tuple(modules), local_extents=local, arguments=taken)


def _each(facts: ModelFacts, module: ModulePlan) -> list[ModulePlan]:
    paths = members(module.path)
    if paths == [module.path]:
        return [module]
    found = {path: facts.find(path) for path in paths}
    return [replace(module, path=p, kind=f.kind if f else module.kind) for p, f in found.items()]


def _entries(facts: ModelFacts, run: str) -> int:
    """How many entries a list of modules has."""
    inside = (m.path.removeprefix(f"{run}.") for m in facts.modules if m.path.startswith(f"{run}."))
    return len({path.partition(".")[0] for path in inside})


def _merged(items: Sequence[_Item], paths: Sequence[str], run: str, size: int) -> list[_Item]:
    """Items that are one for every entry of the list, as one for all."""
    alike: dict[_Item, list[_Item]] = {}
    for item, path in zip(items, paths, strict=True):
        index, dot, rest = path.removeprefix(f"{run}.").partition(".")
        inside = path.startswith(f"{run}.") and index.isdigit()
        key = _at(item, f"{run}.*{dot}{rest}") if inside else item
        alike.setdefault(key, []).append(item)
    return [m for key, found in alike.items() for m in ([key] if len(found) == size else found)]


def _at(item: _Item, path: str) -> _Item:
    if isinstance(item, ModulePlan):
        return replace(item, path=path, reason="")
    return replace(item, module=path)
