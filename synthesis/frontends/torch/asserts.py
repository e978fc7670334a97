"""Asserts on values of tensors, which capture cannot decide: they are left out, and told.

What an `assert` of Python says is what its author takes for granted: `python -O` runs the same code
without, and torch.distributions without their checks where nothing is said of these. Only those are
left out that capture stops at, and only where what is asked changes nothing, which is decided anew
each time that one is met. The files of the user stay as they are. Runs in the worker.
"""

import ast
import builtins
import inspect
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

from torch.distributions import Distribution, distribution

from shardproof.synthesis.frontends.torch.asked.sources import is_watching, seen
from shardproof.synthesis.frontends.torch.asking import only_asks
from shardproof.synthesis.frontends.torch.asserted import Asserted
from shardproof.synthesis.frontends.torch.chosen import SAID, read_whole, reads_whole

T = TypeVar("T")
VALID = "arguments and values of torch.distributions are valid"
DECIDED = frozenset({"GuardOnDataDependentSymNode", "DataDependentOutputException"})
"""Errors of PyTorch where Python asks for the value of a tensor."""
ASKED = "__asked__"
"""The name in a file by which its functions come to `asked`."""


_LEFT: dict[str, dict[int, Asserted]] = {}
"""What is left out in this process: by the path of the file, by the line."""


def left_out() -> tuple[Asserted, ...]:
    """What is left out in this process."""
    return tuple(a for found in _LEFT.values() for a in found.values())


def taken_for_granted() -> Iterator[str]:
    """What is said of asserts that are left out, and of chosen rows, in this process."""
    yield from granted(left_out(), reads_whole())


def granted(asserts: Iterable[Asserted], whole: bool) -> Iterator[str]:
    """The assumptions behind asserts that are left out, and chosen rows that are read as all."""
    for held in asserts:
        yield f"An assert on values of tensors is left out, and taken to hold: {held}."
    if whole:
        yield SAID


def decided(run: Callable[[], T]) -> T:
    """What this gives, run again without each assert that it stops at, and with all rows where it
    stops at how many are chosen."""
    while True:
        try:
            return run()
        except Exception as problem:
            if not (leave_out(problem) or read_whole(problem)):
                raise


def leave_out(problem: BaseException) -> bool:
    """Leave out the assert at which this was raised; whether there is one."""
    if type(problem).__name__ not in DECIDED:
        return False
    package = str(Path(__file__).parent)
    own = None
    for frame, line in _frames(problem):
        if frame.f_globals is vars(distribution) and str(distribution.__file__) not in _LEFT:
            return _without_validation(Asserted("distribution.py", line, VALID))
        file = frame.f_code.co_filename
        if "/torch/" not in file and not file.startswith(package) and Path(file).is_file():
            own = file, line, frame.f_globals
    if own is None:
        return False
    file, line, space = own
    found = next((a for a in _asserts(file) if a.lineno <= line <= (a.end_lineno or 0)), None)
    return found is not None and _leave_out(file, {ast.unparse(found.test)}, space)


def _without_validation(said: Asserted) -> bool:
    """From now on, distributions are as under `python -O`."""
    Distribution.set_default_validate_args(False)
    _LEFT.setdefault(str(distribution.__file__), {})[said.line] = said
    return True


def leave_out_again(known: tuple[Asserted, ...], model: Any) -> None:
    """Leave out what was left out elsewhere, of the code of a model in files of the same names."""
    for said in (a for a in known if a.condition == VALID):
        _without_validation(said)
    kinds = dict.fromkeys(kind for m in model.modules() for kind in type(m).__mro__)
    spaces = {id(g): g for kind in kinds if (g := _globals(kind)) is not None}
    for space in spaces.values():
        file = space["__file__"]
        said = {a.condition for a in known if Path(file).name == a.file}
        if said:
            _leave_out(file, said, space)


def _globals(cls: Any) -> dict[str, Any] | None:
    """The names of the file that a class is written in."""
    names: dict[str, Any] = dict(cls.__dict__)
    found = (f.__globals__ for f in names.values() if isinstance(f, FunctionType))
    own = (g for g in found if g.get("__name__") == cls.__module__)
    return next((g for g in own if isinstance(g.get("__file__"), str)), None)


def _frames(problem: BaseException) -> Iterator[tuple[Any, int]]:
    at = problem.__traceback__
    while at is not None:
        yield at.tb_frame, at.tb_lineno
        at = at.tb_next


def _asserts(file: str) -> list[ast.Assert]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return [n for n in ast.walk(tree) if isinstance(n, ast.Assert)]


def asked(words: str, space: dict[str, Any], own: dict[str, Any]) -> bool:
    """Whether what an assert asks changes nothing, where it is met: it is passed by then."""
    return only_asks(_condition(words), ChainMap(own, space, dict(vars(builtins))))


@cache
def _condition(words: str) -> ast.expr:
    return ast.parse(words, mode="eval").body


class _Without(ast.NodeTransformer):
    """Each assert of these lines, run only where what it asks may change something."""

    def __init__(self, lines: frozenset[int]) -> None:
        self.lines = lines

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        if node.lineno not in self.lines:
            return node
        call = f"{ASKED}({ast.unparse(node.test)!r}, globals(), locals())"
        unless = ast.UnaryOp(ast.Not(), ast.parse(call, mode="eval").body)
        new = ast.copy_location(ast.If(unless, [node], []), node)
        for part in ast.walk(unless):
            ast.copy_location(part, node)
        return ast.fix_missing_locations(new)


def _leave_out(file: str, conditions: set[str], space: dict[str, Any]) -> bool:
    """Functions of a file without its asserts of these words; whether any function has changed."""
    left = _LEFT.setdefault(file, {})
    said = {a.lineno: ast.unparse(a.test) for a in _asserts(file)}
    new = {
        line: Asserted(Path(file).name, line, words)
        for line, words in said.items()
        if words in conditions and line not in left
    }
    if not new:
        return False
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    without = _Without(frozenset({*left, *new})).visit(tree)
    if is_watching():
        without = seen(without)
    codes = {_key(c): c for c in _codes(compile(without, file, "exec", dont_inherit=True))}
    changed = False
    space[ASKED] = asked
    for function in _functions(space):
        code = codes.get(_key(function.__code__))
        if code is not None and code.co_freevars == function.__code__.co_freevars:
            function.__code__ = code
            changed = True
    if changed:
        left |= new
    return changed


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def _functions(space: dict[str, Any]) -> Iterator[FunctionType]:
    """The functions of a file and of its classes, and those that they wrap."""
    seen: set[int] = set()
    waiting: list[Any] = list(space.values())
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            yield value
            cells = value.__closure__ or ()
            waiting += [c.cell_contents for c in cells if _held(c)]
        elif inspect.isclass(value) and value.__module__ == space.get("__name__"):
            waiting += vars(value).values()
        elif isinstance(value, staticmethod | classmethod):
            waiting.append(getattr(cast(Any, value), "__func__", None))
        elif isinstance(value, property):
            waiting += [f for f in (value.fget, value.fset) if f is not None]


def _held(cell: Any) -> bool:
    try:
        return isinstance(cell.cell_contents, FunctionType)
    except ValueError:
        return False
