"""Writes where a patch splits the sequence, and where attention exchanges rows for heads."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shardproof.synthesis.emit.attributes import AttributeChange, LengthChange
from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.form import call
from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.planner.plan import LocalExtent, Plan


def context_lines(plan: Plan, facts: ModelFacts, width: int) -> list[str]:
    """Lines that split the activation at the first repeated block, and each attention in them.

    Raises:
        EmitError: attention outside of repeated blocks, or one that is not given [batch, rows,
            width].
    """
    lines = ["    context = ContextParallel(cp)"]
    lists = dict.fromkeys(filter(None, (_list(a.path) for a in plan.context)))
    alone = next((a.path for a in plan.context if not _list(a.path)), None)
    if alone is not None or len(lists) != 1:
        where = alone or ", ".join(lists)
        raise EmitError(f"a sequence is split at one list of blocks; attention is in {where}")
    (blocks,) = lists
    first = f"{blocks}.0"
    given = [f"model{facts.code(first)}", *_at(facts.find(first), first)]
    lines.append(call("context.split", given, 4, width=width))
    loop = facts.each_block(blocks)
    for attention in plan.context:
        inner = attention.path.removeprefix(f"{blocks}.*")
        fused = ", ".join(f'"{name}": {parts}' for name, parts in attention.projections)
        where = _at(facts.find(attention.path), attention.path)
        each = inner != attention.path
        lines += [loop] if each and loop not in lines else []
        inside = facts.code(inner.removeprefix("."), f"{blocks}.*")
        owner = f"block{inside}" if each else f"model{facts.code(attention.path)}"
        given = [owner, f"{{{fused}}}", f'"{attention.output}"', *where]
        lines.append(call("context.attend", given, 8 if each else 4, width=width))
    return lines


def _list(path: str) -> str:
    """The module list of the block that a path leads into; empty where there is none."""
    parts = path.split(".")
    at = next((i for i, part in enumerate(parts) if part == "*" or part.isdigit()), 0)
    return ".".join(parts[:at])


def over_ranks(
    plan: Plan,
    extents: Sequence[LocalExtent],
    make: Callable[[Sequence[LocalExtent], int], Sequence[AttributeChange | LengthChange]],
) -> list[AttributeChange | LengthChange]:
    """What makes extents local: over the ranks of `tp`, in attention over those of `cp` as well."""
    inner = [
        e for e in extents if any(f"{e.module}.".startswith(f"{a.path}.") for a in plan.context)
    ]
    out = [*make([e for e in extents if e not in inner], plan.tp_size)]
    if inner and plan.cp is not None:
        ranks = "tp.size() * cp.size()" if plan.tp_size > 1 else "cp.size()"
        made = make(inner, plan.tp_size * plan.mesh[plan.cp])
        out += [replace(change, divisor=ranks) if change.divisor else change for change in made]
    return out


def _at(fact: ModuleFact | None, path: str) -> list[str]:
    """The argument that says where a module takes its activation; none where that comes first."""
    x = fact.activation if fact is not None else None
    if x is None or len(x.shape) != 3:
        shape = "none" if x is None else list(x.shape)
        raise EmitError(f"{path}: a sequence is split of [batch, rows, width]; it takes {shape}")
    if x.position < 0:
        return [f'at="{x.name}"']
    return [f"at={x.position}"] if x.position else []
