"""Cuts a model into the stages of a pipeline: which modules each of them keeps."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.patch import EmitError

PP = "pp"
"""The mesh dim."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The stages of a model."""

    stages: tuple[tuple[str, ...], ...] = ()
    """Paths of the modules that each stage keeps, in the order in which they are called."""
    tied: tuple[str, ...] = ()
    """Parameters that the first and the last stage both keep, by their first names."""


def cut(facts: ModelFacts, count: int) -> Cut:
    """Cut a list of blocks into `count` parts of equal numbers, earlier ones with one more where
    they do not divide. What is called before the list is on the first stage, what is called after
    it on the last. Modules with one parameter stay together: those of the first stage and of the
    last are then on both.

    Raises:
        EmitError: no list whose blocks pass one tensor on, fewer blocks than stages, parameters
            that no one stage can keep.
    """
    blocks = _blocks(facts, count)
    inside, holder = {b.path for b in blocks}, blocks[0].path.rpartition(".")[0]
    before, after = list[ModuleFact](), list[ModuleFact]()
    for unit in _units(facts, holder):
        if unit.path in inside:
            continue
        if blocks[0].called < unit.called < blocks[-1].called:
            raise EmitError(f"{unit.path} is called among the blocks of {holder}")
        (before if unit.called < blocks[0].called else after).append(unit)
    each, more = divmod(len(blocks), count)
    ends = [number * each + min(number, more) for number in range(count + 1)]
    kept = [[b.path for b in blocks[i:k]] for i, k in pairwise(ends)]
    kept[0] = [*_in_order(before), *kept[0]]
    kept[-1] += _in_order(after)
    return _tied(facts, kept, inside)


def _blocks(facts: ModelFacts, count: int) -> list[ModuleFact]:
    """The blocks of the one list that is cut."""
    lists: dict[str, list[ModuleFact]] = {}
    for module in facts.modules:
        holder, _, name = module.path.rpartition(".")
        inner = any(holder.startswith(f"{path}.") for path in lists)
        if (
            name.isdigit()
            and not inner
            and re.fullmatch("Module(List|Dict)|Sequential", _kind(facts, holder))
        ):
            lists.setdefault(holder, []).append(module)
    found = {
        path: blocks
        for path, blocks in lists.items()
        if len({b.kind for b in blocks}) == 1 and blocks[0].children
    }
    if len(found) != 1:
        named = ", ".join(found) or "none"
        raise EmitError(
            f"stages are cut from one list of blocks of one class; the model has {named}"
        )
    ((path, blocks),) = found.items()
    if len(blocks) < count:
        raise EmitError(f"{path} has {len(blocks)} blocks, fewer than {count} stages")
    for block in blocks:
        if block.output != "tensor":
            crosses = f"gives a {block.output}" if block.output else "is not called"
            raise EmitError(f"one tensor crosses a cut; {block.path} {crosses}")
        if block is not blocks[0] and not block.follows:
            raise EmitError(
                f"one tensor crosses a cut; {block.path} is not given, first, what the block "
                "before it gives"
            )
    return blocks


def _kind(facts: ModelFacts, path: str) -> str:
    fact = facts.find(path) if path else None
    return fact.kind if fact is not None else ""


def _units(facts: ModelFacts, holder: str) -> Iterable[ModuleFact]:
    """The largest modules with parameters that do not hold the list.

    Raises:
        EmitError: a module around the list has parameters of its own.
    """
    found: dict[str, ModuleFact] = {}
    for module in facts.modules:
        if not module.params:
            continue
        if not module.path or f"{holder}.".startswith(f"{module.path}."):
            own = next(iter(module.params))
            raise EmitError(
                f"{f'{module.path}.{own}'.lstrip('.')} is a parameter of no stage's module"
            )
        parts = module.path.split(".")
        paths = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
        around = (facts.find(p) for p in paths if not f"{holder}.".startswith(f"{p}."))
        unit = next((u for u in around if u is not None and u.called >= 0), None)
        if unit is None:
            raise EmitError(f"{module.path} is not called: other code reads its parameters")
        found[unit.path] = unit
    return found.values()


def _in_order(units: Iterable[ModuleFact]) -> list[str]:
    return [unit.path for unit in sorted(units, key=lambda unit: unit.called)]


def _tied(facts: ModelFacts, kept: list[list[str]], blocks: set[str]) -> Cut:
    """Modules of one parameter on the first stage and on the last, where these have one of them.

    Raises:
        EmitError: they are blocks, or have other parameters besides.
    """
    home = {path: number for number, paths in enumerate(kept) for path in paths}
    tied: list[str] = []
    for names in facts.tied:
        units = {name: _unit(name, home) for name in names}
        stages = {home[unit] for unit in units.values()}
        if len(stages) == 1:
            continue
        said = " and ".join(names)
        if not blocks.isdisjoint(units.values()):
            raise EmitError(f"{said} are one parameter, of stages {_listed(stages)}")
        for unit in dict.fromkeys(units.values()):
            others = [f"{m.path}.{p}" for m in _inside(facts, unit) for p in m.params]
            other = next((p for p in others if p not in names), None)
            if other is not None:
                raise EmitError(f"{said} are one parameter, on two stages, beside {other}")
            for paths in (kept[0], kept[-1]):
                if unit not in paths:
                    paths.append(unit)
        order = [f"{m.path}.{p}" for m in facts.modules for p in m.params]
        tied.append(min(names, key=order.index))
    return Cut(tuple(map(tuple, kept)), tuple(tied))


def _listed(stages: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(stages)))


def _inside(facts: ModelFacts, path: str) -> Sequence[ModuleFact]:
    return [m for m in facts.modules if f"{m.path}.".startswith(f"{path}.")]


def _unit(name: str, home: Iterable[str]) -> str:
    return next(path for path in home if name.startswith(f"{path}."))
