"""From a plan to a patch: a diff of the user's file, or a new file for a transformers model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from synthesis.emit.facts import ModelFacts
from synthesis.emit.library_file import library_patch
from synthesis.emit.patch import EmitError, Patch, check_applies
from synthesis.emit.styles import split_of
from synthesis.emit.user_file import user_patch
from synthesis.frontends.torch.rolling.paths import members
from synthesis.plan import LocalExtent, ModulePlan, Plan

_Item = TypeVar("_Item", ModulePlan, LocalExtent)


def spelled(facts: ModelFacts, plan: Plan) -> Plan:
    """The plan without runs of lists such as `layers.[0:4:2]`, which PyTorch does not know.

    Where all entries of such a list are planned alike, they are one `*` again.
    """
    modules = [m for m in plan.modules for m in _each(facts, m)]
    extents = [replace(e, module=p) for e in plan.local_extents for p in members(e.module)]
    paths = [*(m.path for m in plan.modules), *(e.module for e in plan.local_extents)]
    for run in sorted({path.partition(".[")[0] for path in paths if ".[" in path}):
        size = _entries(facts, run)
        modules = _merged(modules, [m.path for m in modules], run, size)
        extents = _merged(extents, [e.module for e in extents], run, size)
    return replace(plan, modules=tuple(modules), local_extents=tuple(extents))


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


def _check_divisible(facts: ModelFacts, plan: Plan) -> None:
    """Every split dim of every parameter divides evenly; the emitted styles rely on it."""
    for m in plan.modules if plan.tp else ():
        fact = facts.find(m.path)
        if fact is None:
            continue
        for name, shape in fact.params.items():
            split = split_of(m, fact.base, name)
            if split == "R":
                continue
            dim = (
                int(split[2:-1]) if split[2:-1].isdigit() else (0 if fact.base == "Linear" else -1)
            )
            ranks = plan.tp_size * m.parts
            if shape[dim] % ranks:
                raise EmitError(
                    f"{m.path}.{name}: dim {dim} of {list(shape)} is not divisible by {ranks} "
                    f"({plan.tp}={plan.tp_size}" + (f", {m.parts} parts)" if m.parts > 1 else ")")
                )


def _called(facts: ModelFacts, plan: Plan) -> Plan:
    """The plan with the styles of modules that are never called (a table that others share) on
    those that share their parameter and are."""
    planned = {m.path for m in plan.modules}
    modules: list[ModulePlan] = []
    for m in plan.modules:
        fact = facts.find(m.path)
        partners: list[ModulePlan] = []
        if fact is not None and not fact.output:
            shared = [g for g in facts.tied if any(p.rpartition(".")[0] == m.path for p in g)]
            for path in dict.fromkeys(p.rpartition(".")[0] for g in shared for p in g):
                other = facts.find(path)
                if other and other.output and other.base == fact.base and path not in planned:
                    partners.append(replace(m, path=path, kind=other.kind))
        modules += partners or [m]
    return replace(plan, modules=tuple(modules))


def emit(
    facts: ModelFacts,
    plan: Plan,
    root: Path | None = None,
    layouts: Mapping[str, str] | None = None,
) -> Patch:
    """The patch that carries out `plan`, checked with `git apply` in a scratch folder.

    Args:
        root: folder that the diff's paths are relative to; the working directory if None.
        layouts: of every parameter (`guarding.layouts`), where the patch is to start the guard.

    Raises:
        EmitError: a style, an extent or a loss that cannot be written; git refuses the result.
    """
    plan = _called(facts, spelled(facts, plan))
    _check_divisible(facts, plan)
    if facts.file is None:
        out = library_patch(facts, plan, layouts)
    else:
        path = Path(facts.file).resolve()
        base = (root or Path.cwd()).resolve()
        shown = path.relative_to(base).as_posix() if path.is_relative_to(base) else path.name
        out = user_patch(facts, plan, path, shown, layouts)
    check_applies(out)
    return out
