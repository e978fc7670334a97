"""Changes of the function that is called after the backward: gradients that it reduces."""

import ast
from collections.abc import Iterable, Iterator

from shardproof.synthesis.repair.in_source import (
    Function,
    Module,
    Rewrite,
    SourceFile,
    groups_at,
)


def finished(module: Module, file: SourceFile, attributes: set[str]) -> Iterator[Rewrite]:
    """Changes of the function that is called after the backward."""
    function = next(
        (n for n in file.tree.body if isinstance(n, Function) and n.name == module.finish), None
    )
    if function is None or not function.args.args or not module.only_gradients:
        return
    name = function.args.args[0].arg
    every = set(module.wrong) == set(module.params)
    some = ", ".join(_attribute(name, p) for p in module.wrong)
    iterables = [f"({some},)"] if module.wrong and not every else []
    iterables.append(f"{name}.parameters()")
    for loop in (n for n in ast.walk(function) if isinstance(n, ast.For)):
        for items in iterables:
            yield from file.made(loop, "finish", file.put(loop.iter, items))
        if isinstance(loop.iter, ast.Tuple | ast.List) and len(loop.iter.elts) > 1:
            for at in range(len(loop.iter.elts)):
                yield from file.made(loop, "finish", file.dropped(loop.iter.elts, at))
    groups: Iterable[str] = groups_at(file, function, attributes, module.files)
    alone = next((n for n in module.mesh), "") if len(module.mesh) == 1 else ""
    for group in [*groups, *([""] if alone else [])]:
        for items in iterables:
            for fold in ("", ", op=dist.ReduceOp.AVG"):
                over = f", group={group}" if group else ""
                lines = [f"for p in {items}:", f"    dist.all_reduce(p.grad{fold}{over})"]
                after = file.beside(function.body[-1], lines)
                yield from file.made(function, "finish", after)


WRAPPERS = ("DistributedDataParallel", "fully_shard")


def wrapped(module: Module, file: SourceFile) -> Iterator[Rewrite]:
    """What averages gradients over the dims that inputs are split over, around what a function
    returns, or before it returns."""
    made = [n for n in file.tree.body if isinstance(n, Function) and n.name == module.target]
    if not made or not module.only_gradients:
        return
    given = [a.arg for a in made[0].args.args]
    last = made[0].body[-1]
    value = last.value if isinstance(last, ast.Return) else None
    whole = "mesh" if "mesh" in given else ""
    for dim in module.rows if whole else ():
        part = whole if len(module.mesh) == 1 else f'{whole}["{dim}"]'
        for name in (n for n in WRAPPERS if file.has(n)):
            option = "device_mesh" if name == WRAPPERS[0] else "mesh"
            if value is not None:
                around = f"{name}({file.of(value)}, {option}={part})"
                yield from file.made(last, "wrap", file.put(value, around))
            if given[0] != whole:
                line = f"{name}({given[0]}, {option}={part})"
                before = file.beside(last, [line], before=value is not None)
                yield from file.made(last, "wrap", before)


def _attribute(module: str, path: str) -> str:
    """How a parameter is written: `model.norm.weight`."""
    plain = all(part.isidentifier() for part in path.split("."))
    return f"{module}.{path}" if plain else f'{module}.get_parameter("{path}")'
