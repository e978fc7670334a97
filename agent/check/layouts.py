"""A statement of layouts under which the numbers of a refuted module agree: a fused weight, which
its shape makes look like one that is split as a whole."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardproof.agent.check import judging
from shardproof.agent.check.contract import Placed, Statements
from shardproof.agent.check.judging import Checked, Compared
from shardproof.agent.run.translate import as_ours
from shardproof.synthesis.frontends.torch.ranks.stated import LayoutLine
from shardproof.synthesis.repair.attempts import attempts
from shardproof.verifier.verdict import Counterexample, Proof

FUSED = (2, 3, 4)
"""Weights that are kept as one, at most: gate and up, queries with keys and values."""
OPTIONS = {"parameter": "--layout", "output": "--output-layout"}


def agreeing(checked: Checked, stated: Statements, compared: Compared) -> Iterator[str]:
    """The options under which the module is proved, if there are some; empty for each that was
    tried in vain. Only what shapes alone said is stated otherwise, as fused parts.
    """
    if not isinstance(checked.verdict, Counterexample):
        return

    def judge(asked: tuple[list[Placed], list[LayoutLine]]) -> bool | None:
        more = {"parameter": stated.params, "output": stated.outputs}
        for item, line in zip(*asked, strict=True):
            more[item.kind] = (*more[item.kind], line)
        both = replace(stated, params=more["parameter"], outputs=more["output"])
        return _agree(checked, both, compared) or None

    for asked, agrees in attempts(_statements(checked), judge):
        yield _said(*asked) if agrees else ""


def _agree(checked: Checked, stated: Statements, compared: Compared) -> bool:
    try:
        found = judging.check(checked.captured, stated, lambda _: None, compared)
    except Exception as problem:
        if as_ours(problem) is None:
            raise
        return False
    return isinstance(found.verdict, Proof)


def _said(placed: Sequence[Placed], lines: Sequence[LayoutLine]) -> str:
    pairs = zip(placed, lines, strict=True)
    return " ".join(f"{OPTIONS[p.kind]} '{p.name}={line.text}'" for p, line in pairs)


def _statements(checked: Checked) -> Iterator[tuple[list[Placed], list[LayoutLine]]]:
    """For one module after another, and for all together: the parts that its weights may have."""
    split = [p for p in checked.placed if p.how == "from its shape" and p.layout.sharded]
    split = [p for p in split if p.kind in OPTIONS]
    owners = dict.fromkeys(p.name.rpartition(".")[0] for p in split if p.kind == "parameter")
    sets = [
        [p for p in split if p.kind == "parameter" and p.name.startswith(f"{o}.")] for o in owners
    ]
    sets += [[p for p in split if p.kind == "output"], split]
    for count in FUSED:
        for chosen in sets:
            lines = [_fused(p, count) for p in chosen]
            kept = [(p, line) for p, line in zip(chosen, lines, strict=True) if line is not None]
            if kept:
                yield [p for p, _ in kept], [line for _, line in kept]


def _fused(placed: Placed, count: int) -> LayoutLine | None:
    """A tensor of equal parts along the dim that is split, each split; None where they do not
    divide."""
    dims: list[str] = []
    for dim, extent in zip(placed.layout.dims, placed.layout.global_shape, strict=True):
        names = [a.mesh_dim for a in dim if a.mesh_dim]
        if not names:
            dims.append(f"[{extent}]")
            continue
        size = dim[0].size
        rest, left = divmod(extent, count * size)
        if len(names) != 1 or left or not rest:
            return None
        dims.append(f"[{count} {size}@{names[0]} {rest}]")
    return LayoutLine(placed.name, "".join(dims), f"{OPTIONS[placed.kind]} {placed.name}")
