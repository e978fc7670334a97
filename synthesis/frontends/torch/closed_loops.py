"""Loops whose entries leave nothing behind but what they add to tensors: read off their source.

Where a body gives no name to what follows it, keeps nothing from one entry to the next and ends no
loop, an entry that adds nothing may as well be left out, or be run.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shardproof.synthesis.frontends.torch.errors import OR_TRANSLATE, CaptureError

_HIDDEN = (
    *(ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def closed_loop(frame: Any) -> ast.For:
    """The loop that a frame begins, where it is closed.

    Raises:
        CaptureError: with what it leaves behind.
    """
    file, line = frame.f_code.co_filename, frame.f_lineno
    path = Path(file)
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    around = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _on(n, line)]
    found = [n for f in around[-1:] for n in ast.walk(f) if isinstance(n, ast.For)]
    found = [n for n in found if _on(n.iter, line)]
    if len(found) != 1 or not _plain(found[0].iter):
        raise _open(path.name, line, "", "it is not the one loop of its line, over nothing else")
    loop = found[0]
    _Body(path, around[-1], loop).check()
    return loop


def skips_rest(loop: ast.For, line: int) -> bool:
    """Whether what is asked at a line of a loop decides only whether the rest is left out."""
    asked = [n for n in ast.walk(loop) if isinstance(n, ast.If) and _on(n.test, line)]
    return len(asked) == 1 and not asked[0].orelse and _continues(asked[0].body)


def _on(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _plain(over: ast.expr) -> bool:
    """Whether a loop runs over the entries themselves, not over what counts or pairs them."""
    return isinstance(over, ast.Name | ast.Attribute) or (
        isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute)
    )


def _continues(body: Sequence[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.Continue)


def _open(file: str, line: int, text: str, why: str) -> CaptureError:
    return CaptureError(
        f"a loop over what values of a tensor choose is not read: {why}",
        file=file,
        line=line,
        text=text,
        hint=f"loop over all, and let what is not chosen add nothing{OR_TRANSLATE}",
    )


class _Body:
    """The body of a loop of a function."""

    def __init__(self, path: Path, function: ast.FunctionDef, loop: ast.For) -> None:
        self.path, self.loop = path, loop
        inside = {id(n) for n in ast.walk(loop)}
        names = [n for n in ast.walk(loop) if isinstance(n, ast.Name)]
        self.given = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
        other = (n for n in ast.walk(function) if id(n) not in inside)
        self.outside = {
            n.id if isinstance(n, ast.Name) else n.arg
            for n in other
            if isinstance(n, ast.Name | ast.arg)
        }

    def check(self) -> None:
        for name in sorted(self.given & self.outside):
            raise self.refused(self.loop, f"{name} is known outside of it")
        if self.loop.orelse:
            raise self.refused(self.loop, "it has an else")
        self.run(self.loop.body, self.names(self.loop.target))

    def refused(self, node: ast.stmt | ast.expr, why: str) -> CaptureError:
        text = self.path.read_text(encoding="utf-8").splitlines()[node.lineno - 1].strip()
        return _open(self.path.name, node.lineno, text, why)

    def run(self, body: Sequence[ast.stmt], known: frozenset[str]) -> frozenset[str]:
        """The names known after these statements, from those before."""
        for node in body:
            known = self.step(node, known)
        return known

    def step(self, node: ast.stmt, known: frozenset[str]) -> frozenset[str]:
        match node:
            case ast.Assign(targets=targets, value=value):
                self.read(value, known)
                return known.union(*(self.names(t) for t in targets))
            case ast.AugAssign(target=ast.Name(id=name) as target, value=value):
                self.read(value, known)
                self.read(ast.copy_location(ast.Name(name, ast.Load()), target), known)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr)) as call) if attr.endswith(
                "_"
            ) and not attr.startswith("_"):
                self.read(call, known)
            case ast.Expr(value=ast.Constant()) | ast.Continue() | ast.Pass():
                pass
            case ast.If(test=test, body=body, orelse=orelse):
                self.read(test, known)
                ways = [self.run(b, known) for b in (body, orelse) if not _continues(b)]
                return ways[0].intersection(*ways[1:]) if ways else known
            case ast.With(items=items, body=body) if not any(i.optional_vars for i in items):
                for item in items:
                    self.read(item.context_expr, known)
                return self.run(body, known)
            case _:
                raise self.refused(node, "this may leave something behind")
        return known

    def names(self, target: ast.expr) -> frozenset[str]:
        """The names that a target gives."""
        match target:
            case ast.Name(id=name):
                return frozenset({name})
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return frozenset[str]().union(*map(self.names, parts))
            case _:
                raise self.refused(target, "this may leave something behind")

    def read(self, value: ast.expr, known: frozenset[str]) -> None:
        """Check that what is read of the body's own was given in the same entry."""
        for node in _within(value):
            if isinstance(node, _HIDDEN):
                raise self.refused(value, "this may leave something behind")
            if isinstance(node, ast.Name) and node.id in self.given - known:
                raise self.refused(value, f"{node.id} may be that of the entry before")


def _within(node: ast.expr) -> Iterator[ast.AST]:
    yield from ast.walk(node)
