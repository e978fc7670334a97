"""Changes of the entries of plans: dicts of `parallelize_module`, rules of transformers."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from shardproof.synthesis.emit.source import Edit
from shardproof.synthesis.repair.in_source import Rewrite, SourceFile, call_name, less

STYLES = ("ColwiseParallel", "RowwiseParallel", "SequenceParallel")
LAYOUTS = ("Shard(0)", "Shard(1)", "Shard(-1)", "Replicate()")
SIDES = ("input_layouts", "output_layouts")
RULES = (
    "replicated_with_grad_allreduce",
    "colwise",
    "rowwise",
    "colwise_gather_output",
    "rowwise_split_input",
    "sequence_parallel",
)
"""Styles of transformers."""


def plan_entries(
    files: Mapping[str, SourceFile], params: Sequence[str], wrong: Sequence[str]
) -> Iterator[Rewrite]:
    """One entry changed, taken away or put in; those of modules with wrong gradients first."""
    modules = list(dict.fromkeys(p.rpartition(".")[0] for p in (*wrong, *params)))
    for file in files.values():
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Dict):
                yield from _dict(file, node, [m for m in modules if m])
                yield from _patterns(file, node, [m for m in modules if m])
            if isinstance(node, ast.Call) and call_name(node) in STYLES:
                yield from _style(file, node)


def _imported(file: SourceFile, name: str, of: str) -> list[Edit] | None:
    """What lets a file say a name: nothing, or one more name in the import of `of`; None where
    there is no such import."""
    name = name.partition("(")[0]
    if file.has(name):
        return []
    for node in file.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == of:
            end = node.names[-1]
            assert end.end_lineno is not None
            assert end.end_col_offset is not None
            at = file.offset(end.end_lineno, end.end_col_offset)
            return [Edit(at, at, f", {name}")]
    first = next((n for n in file.tree.body if isinstance(n, ast.Import | ast.ImportFrom)), None)
    return (
        None if first is None else [file.beside(first, [f"from {of} import {name}"], before=True)]
    )


def _style(file: SourceFile, node: ast.Call) -> Iterator[Rewrite]:
    """Another style, or other layouts of what goes in and out."""
    for style in STYLES:
        more = _imported(file, style, "torch.distributed.tensor.parallel")
        if more is not None and style != call_name(node):
            yield from file.made(node, "plan", file.put(node.func, style), *more)
            yield from file.made(node, "plan", file.put(node, f"{style}()"), *more)
    for at, keyword in enumerate(node.keywords):
        items = [*node.args, *node.keywords]
        yield from file.made(node, "plan", file.dropped(items, len(node.args) + at))
        if keyword.arg in SIDES:
            for layout in LAYOUTS:
                more = _imported(file, layout, "torch.distributed.tensor")
                if more is not None:
                    yield from file.made(node, "plan", file.put(keyword.value, layout), *more)
    given = {k.arg for k in node.keywords}
    end = file.span(node)[1] - 1
    for side in SIDES if call_name(node) != "SequenceParallel" else ("sequence_dim",):
        for value in LAYOUTS if side in SIDES else ("0", "2"):
            more = _imported(file, value, "torch.distributed.tensor") if side in SIDES else []
            if side not in given and more is not None:
                comma = ", " if node.args or node.keywords else ""
                yield from file.made(node, "plan", Edit(end, end, f"{comma}{side}={value}"), *more)


def _dict(file: SourceFile, node: ast.Dict, modules: Sequence[str]) -> Iterator[Rewrite]:
    """An entry less, or one more for a module that has none."""
    if not any(call_name(v) in STYLES for v in node.values):
        return
    names = [k.value for k in node.keys if isinstance(k, ast.Constant)]
    for at in range(len(node.values)):
        yield from file.made(node, "plan", _entry(file, node, at))
    last = file.span(node.values[-1])[1]
    for module in modules:
        for style in STYLES if module not in names else ():
            more = _imported(file, style, "torch.distributed.tensor.parallel")
            if more is not None:
                yield from file.made(
                    node, "plan", Edit(last, last, f', "{module}": {style}()'), *more
                )


def rules(given: Mapping[str, str], wrong: Sequence[str]) -> Iterator[dict[str, str]]:
    """Rules of a plan of transformers: another for the modules of `wrong` parameters, all of them
    and one after another, or one less. None is empty: that is no plan."""
    names = dict.fromkeys(p.rpartition(".")[0] for p in wrong)
    patterns = list(dict.fromkeys(re.sub(r"\.\d+(?=\.|$)", ".*", n) for n in names))
    for some in ([patterns] if patterns[1:] else []) + [[p] for p in patterns]:
        for style in RULES:
            changed = {**given, **dict.fromkeys(some, style)}
            if changed != given:
                yield changed
    for pattern in given if len(given) > 1 else ():
        yield {k: v for k, v in given.items() if k != pattern}


def _patterns(file: SourceFile, node: ast.Dict, modules: Sequence[str]) -> Iterator[Rewrite]:
    """Another style of transformers for a pattern, a pattern less, or one more."""
    names = [k.value for k in node.keys if isinstance(k, ast.Constant)]
    values = [v for v in node.values if isinstance(v, ast.Constant) and v.value in RULES]
    if not values or len(values) < len(node.values) or len(names) < len(values):
        return
    for value in values:
        for style in RULES:
            if style != value.value:
                yield from file.made(value, "plan", file.put(value, f'"{style}"'))
    firsts = {str(n).partition(".")[0] for n in names}
    for module in modules:
        parts = ["*" if p.isdigit() else p for p in module.split(".")]
        while parts and parts[0] not in firsts:
            parts.pop(0)
        pattern, last = ".".join(parts), file.span(node.values[-1])[1]
        for style in RULES if pattern and pattern not in names else ():
            yield from file.made(node, "plan", Edit(last, last, f', "{pattern}": "{style}"'))
    for at in range(len(values)):
        yield from file.made(node, "plan", _entry(file, node, at))


def _entry(file: SourceFile, node: ast.Dict, at: int) -> Edit:
    """What takes an entry out, its comma too."""
    spans = [
        (file.span(k)[0] if k is not None else file.span(v)[0] - 2, file.span(v)[1])
        for k, v in zip(node.keys, node.values, strict=True)
    ]
    return less(spans, at)
