"""From a plan to a patch: a diff of the user's file, or a new file for a transformers model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.form import Form, line_length
from shardproof.synthesis.emit.libraries import Sources
from shardproof.synthesis.emit.library_file import library_patch
from shardproof.synthesis.emit.lists import spelled
from shardproof.synthesis.emit.patch import EmitError, Patch, check_applies
from shardproof.synthesis.emit.styles import split_of
from shardproof.synthesis.emit.train_spec import train_spec_patch
from shardproof.synthesis.emit.user_file import user_patch
from shardproof.synthesis.frontends.torch.homes import home_of, patched_from
from shardproof.synthesis.planner.dialects import TORCHTITAN
from shardproof.synthesis.planner.plan import ModulePlan, Plan


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
            first = fact.base != "Conv1D"
            dim = int(split[2:-1]) if split[2:-1].isdigit() else (0 if first else -1)
            ranks = plan.tp_size * m.parts
            if shape[dim] % ranks:
                raise EmitError(
                    f"{m.path}.{name}: dim {dim} of {list(shape)} is not divisible by {ranks} "
                    f"({plan.tp}={plan.tp_size}" + (f", {m.parts} parts)" if m.parts > 1 else ")")
                )


def _partners(facts: ModelFacts, plan: Plan) -> Plan:
    """The plan with the styles of modules on those that share their parameters: all of them, or the
    one of a module that is never called (a table that others share), which then has no style."""
    planned = {m.path for m in plan.modules}
    modules: list[ModulePlan] = []
    for m in plan.modules:
        fact = facts.find(m.path)
        shared = [g for g in facts.tied if any(p.rpartition(".")[0] == m.path for p in g)]
        partners: list[ModulePlan] = []
        for path in dict.fromkeys(p.rpartition(".")[0] for g in shared for p in g):
            other = facts.find(path)
            if fact is None or other is None or not other.output or path in planned:
                continue
            whole = other.kind == fact.kind and all(
                any({f"{m.path}.{name}", f"{path}.{name}"} <= {*g} for g in shared)
                for name in {*fact.params, *other.params}
            )
            if whole or (not fact.output and other.base == fact.base):
                partners.append(replace(m, path=path, kind=other.kind))
        called = fact is None or fact.output or not partners
        modules += [m, *partners] if called else partners
    return replace(plan, modules=tuple(modules))


def _uncalled(facts: ModelFacts, plan: Plan) -> Plan:
    """The plan with the columns of modules that are never called, whose parameters the code around
    them reads, as pieces of these. Attention has a style that reads those of its projection."""
    modules: list[ModulePlan] = []
    for m in plan.modules:
        fact, around = facts.find(m.path), facts.find(m.path.rpartition(".")[0])
        columns = m.style == "column" and m.input == "R" and m.output != "R"
        attention = around is not None and around.base == "MultiheadAttention"
        if fact is not None and not fact.output and columns and not attention:
            placed = {name: split_of(m, fact.base, name) for name in fact.params}
            splits = ((name, int(s[2:-1]), 1) for name, s in placed.items() if s != "R")
            m = replace(m, style="pieces", splits=tuple(splits))
        modules.append(m)
    return replace(plan, modules=tuple(modules))


def as_written(facts: ModelFacts, plan: Plan) -> Plan:
    """The plan with the modules that a patch names."""
    return _uncalled(facts, _partners(facts, spelled(facts, plan)))


def emit(
    facts: ModelFacts,
    plan: Plan,
    root: Path | None = None,
    layouts: Mapping[str, str] | None = None,
    inline: bool = False,
) -> Patch:
    """The patch that carries out `plan`, checked with `git apply` in a scratch folder.

    Args:
        root: folder that the diff's paths are relative to; the working directory if None, and
            where the file is not below it, the folder that it is imported from.
        layouts: of every parameter (`guarding.layouts`), where the patch is to start the guard.
        inline: paste definitions instead of importing `shardproof.runtime`.

    Raises:
        EmitError: a style, an extent or a loss that cannot be written; git refuses the result.
    """
    plan = as_written(facts, plan)
    _check_divisible(facts, plan)
    if facts.file is None:
        out = library_patch(facts, plan, layouts, Form(line_length(Path.cwd()), inline))
    else:
        path = Path(facts.file).resolve()
        base = home_of(path).base
        inside = root is not None and base.is_relative_to(root.resolve())
        sources = Sources(base, root.resolve() if root and inside else patched_from(path))
        form = Form(line_length(path.parent), inline)
        if plan.dialect == TORCHTITAN.name:
            out = train_spec_patch(facts, plan, path, sources, form)
        else:
            out = user_patch(facts, plan, path, sources, layouts, form)
    check_applies(out)
    return out
