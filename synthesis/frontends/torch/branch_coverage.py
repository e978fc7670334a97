"""Which ways the user's code went: every condition is watched while the code runs.

The file is compiled from its syntax tree with each condition of `if`, `while`, `assert`, a
conditional expression or a comprehension handed to a recorder. Line numbers stay.
"""

# pyright: basic
# (Loaders are replaced.)

import ast
import importlib.machinery
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from shardproof.synthesis.frontends.torch.errors import shown
from shardproof.synthesis.frontends.torch.homes import own

_NAME = "__shardproof_way__"
MOST_STEPS = 10_000
Key = tuple[str, int, int]
"""File, line and column of a condition."""


@dataclass
class Way:
    """A condition, and how often it was true and false."""

    file: str
    line: int
    text: str
    loop: bool
    true: int = 0
    false: int = 0


@dataclass
class Ways:
    """The conditions of the files below a folder."""

    root: str
    seen: dict[Key, Way] = field(default_factory=dict[Key, Way])
    counting: bool = False
    trail: list[tuple[Any, Any]] | None = None
    """Filled, where it is a list, with every condition in the order they were asked."""

    def record(self, key: Key, value: Any) -> Any:
        """`value`, with its truth noted. It is asked for once more than the code does."""
        if self.trail is not None and len(self.trail) < MOST_STEPS:
            self.trail.append((key, bool(value)))
        if self.counting:
            way = self.seen[key]
            if value:
                way.true += 1
            else:
                way.false += 1
        return value

    def note(self, key: Key, what: str, true: bool, false: bool) -> None:
        """How an op came out that decides entry by entry, in a line of a file below the root."""
        if key not in self.seen:
            text = linecache.getline(key[0], key[1]).strip()
            place = shown(key[0], self.root)
            self.seen[key] = Way(place, key[1], f"{text}: {what}", False)
        self.seen[key].true += true
        self.seen[key].false += false

    def counts(self) -> dict[Key, tuple[int, int]]:
        return {key: (way.true, way.false) for key, way in self.seen.items()}

    def restore(self, counts: dict[Key, tuple[int, int]]) -> None:
        """Forget what was counted since."""
        for key, way in self.seen.items():
            way.true, way.false = counts.get(key, (0, 0))

    def taken(self) -> frozenset[tuple[Key, bool]]:
        """The ways that were gone so far."""
        return frozenset(
            (key, way)
            for key, found in self.seen.items()
            for way, count in ((True, found.true), (False, found.false))
            if count
        )

    def reached(self) -> list[Way]:
        """Conditions that were asked at all."""
        return [w for w in self.seen.values() if w.true or w.false]


class _Watcher(ast.NodeTransformer):
    def __init__(self, ways: Ways, file: str, shown: str, lines: list[str]) -> None:
        self.ways, self.file, self.shown, self.lines = ways, file, shown, lines

    def _watched(self, test: ast.expr, loop: bool = False) -> ast.expr:
        key = (self.file, test.lineno, test.col_offset)
        text = self.lines[test.lineno - 1].strip()
        self.ways.seen.setdefault(key, Way(self.shown, test.lineno, text, loop))
        parts = ast.Tuple([ast.Constant(k) for k in key], ast.Load())
        call = ast.Call(ast.Name(_NAME, ast.Load()), [parts, test], [])
        return ast.fix_missing_locations(ast.copy_location(call, test))

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        node.test = self._watched(node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        node.test = self._watched(node.test)
        return node

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        node.test = self._watched(node.test, True)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        self.generic_visit(node)
        node.ifs = [self._watched(test) for test in node.ifs]
        return node


@contextmanager
def watched(root: str) -> Iterator[Ways]:
    """Files below `root` that are imported inside are compiled with their conditions watched."""
    ways = Ways(root)
    from shardproof.synthesis.frontends.torch.asked.sources import is_watching, seen

    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        if not own(root, path):
            return original(self, fullname)
        data = self.get_data(path)
        tree = ast.parse(data, path)
        lines = data.decode("utf-8", "replace").split("\n")
        changed = _Watcher(ways, path, shown(path, root), lines).visit(tree)
        changed = seen(changed) if is_watching() else changed
        code = compile(changed, path, "exec", dont_inherit=True)
        import builtins

        setattr(builtins, _NAME, ways.record)
        return code

    loader.get_code = get_code
    try:
        yield ways
    finally:
        loader.get_code = original
