"""Source text as bytes-exact pieces: replace spans that `ast` names, keep all other bytes."""

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from shardproof.synthesis.emit.patch import EmitError

Place = ast.expr | ast.stmt | ast.arg | ast.keyword


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace text[start:end] with `new`."""

    start: int
    end: int
    new: str


class SourceText:
    """A Python file: its text, line ends as found, and the places of its syntax nodes."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        try:
            self.tree = ast.parse(text)
        except SyntaxError as error:
            raise EmitError(f"{path}:{error.lineno}: not Python: {error.msg}") from error
        self.starts = [0, *(i + 1 for i, char in enumerate(text) if char == "\n")]
        """Where lines begin, and where the last one ends."""
        if self.starts[-1] != len(text):
            self.starts.append(len(text))

    def offset(self, line: int, column: int) -> int:
        """Index in the text of a 1-based line and a column in UTF-8 bytes."""
        start = self.starts[line - 1]
        return start + len(self.text[start:].partition("\n")[0].encode()[:column].decode())

    def span(self, node: Place) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)

    def of(self, node: Place) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def apply(self, edits: Iterable[Edit]) -> str:
        """The text after the edits.

        Raises:
            EmitError: two edits overlap, or the result is not Python.
        """
        text, limit = self.text, len(self.text) + 1
        for edit in sorted(set(edits), reverse=True):
            if edit.end > limit:
                old = self.text[edit.start : edit.end]
                raise EmitError(f"{self.path}: two edits meet in {old!r}")
            text = text[: edit.start] + edit.new + text[edit.end :]
            limit = edit.start
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise EmitError(f"{self.path}: the patched text is not Python: {error.msg}") from error
        return text

    def insertion(self, index: int, code: str) -> Edit:
        """Insert `code` at `index`, with the line ends of the file."""
        return Edit(index, index, code.replace("\n", self.newline))

    def after_imports(self) -> int:
        """Where new imports go: after the last import at the top of the file."""
        line = 0
        for node in self.tree.body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, ast.Import | ast.ImportFrom) or (docstring and line == 0):
                line = node.end_lineno or node.lineno
        return self.starts[line]

    def after_standard_imports(self) -> int:
        """Where imports of the standard library go: after the last one, else with the others."""
        for node in reversed(self.tree.body):
            if isinstance(node, ast.Import):
                module = node.names[0].name
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
            else:
                continue
            line = node.end_lineno or node.lineno
            if module.split(".")[0] in sys.stdlib_module_names:
                return self.starts[line]
        return self.after_imports()

    def place_of_import(self, line: str) -> int:
        """Where an import statement goes: in its order among those beside imports of PyTorch, or
        among the last ones where there are none of PyTorch."""
        imports = [n for n in self.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        block: list[ast.Import | ast.ImportFrom] = []
        for node in imports:
            joined = bool(block) and node.lineno == (block[-1].end_lineno or 0) + 1
            if not joined and any(_order_of(n)[1].split(".")[0] == "torch" for n in block):
                break
            block = [*block, node] if joined else [node]
        (added,) = ast.parse(line).body
        later = [n for n in block if _order_of(n) > _order_of(added)]
        if later:
            return self.starts[later[0].lineno - 1]
        if not block:
            return self.after_imports()
        return self.starts[block[-1].end_lineno or block[-1].lineno]

    def imported_from(self, module: str) -> set[str]:
        """Names that the file imports from a module."""
        found = [n for n in self.tree.body if isinstance(n, ast.ImportFrom) and n.module == module]
        return {alias.asname or alias.name for node in found for alias in node.names}

    def before_main(self) -> int | None:
        """Where `if __name__ == "__main__":` starts at the top level, if it does."""
        for node in self.tree.body:
            if isinstance(node, ast.If) and "__name__" in ast.dump(node.test):
                return self.span(node)[0]
        return None

    def names(self) -> set[str]:
        """Names bound at the top level."""
        out: set[str] = set()
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                out.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                out.update((a.asname or a.name).split(".")[0] for a in node.names)
            elif isinstance(node, ast.Assign):
                out.update(t.id for t in node.targets if isinstance(t, ast.Name))
        return out


def _order_of(node: ast.stmt) -> tuple[bool, str]:
    """The order of import statements: `import` before `from`, then by module."""
    if isinstance(node, ast.Import):
        return False, node.names[0].name
    return True, node.module or "" if isinstance(node, ast.ImportFrom) else ""
