"""Changes of the function that is called after the backward: gradients that it reduces."""

import ast
from collections.abc import Iterable, Iterator

from synthesis.repair.in_source import Function, Module, Rewrite, SourceFile, groups_at


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
            text = file.spliced(file.put(loop.iter, items))
            if text is not None:
                yield Rewrite(file.name, loop.lineno, "finish", text)
        if isinstance(loop.iter, ast.Tuple | ast.List) and len(loop.iter.elts) > 1:
            for at in range(len(loop.iter.elts)):
                text = file.spliced(file.dropped(loop.iter.elts, at))
                if text is not None:
                    yield Rewrite(file.name, loop.lineno, "finish", text)
    groups: Iterable[str] = groups_at(file, function, attributes, module.files)
    alone = next((n for n in module.mesh), "") if len(module.mesh) == 1 else ""
    for group in [*groups, *([""] if alone else [])]:
        for items in iterables:
            for fold in ("", ", op=dist.ReduceOp.AVG"):
                over = f", group={group}" if group else ""
                lines = [f"for p in {items}:", f"    dist.all_reduce(p.grad{fold}{over})"]
                text = file.spliced(file.beside(function.body[-1], lines))
                if text is not None:
                    yield Rewrite(file.name, function.lineno, "finish", text)


def _attribute(module: str, path: str) -> str:
    """How a parameter is written: `model.norm.weight`."""
    plain = all(part.isidentifier() for part in path.split("."))
    return f"{module}.{path}" if plain else f'{module}.get_parameter("{path}")'
