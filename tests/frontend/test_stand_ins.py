"""Whatever replaces a function or class of PyTorch is listed with what it differs in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from benchmarks.declared.stand_ins import STAND_INS

ROOT = Path(__file__).parents[2]
ELSEWHERE = ("guard",)
"""Folders whose patches work on a run of the owner's, where that is asked for."""
OWN = frozenset({"config", "cls", "new", "self", "self.held", "builtins", "get_code"})
OWN |= {"traced.module"}
"""Objects of ours, of a model or of Python's, that attributes are set on."""


def dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def of_torch(tree: ast.Module) -> dict[str, str]:
    """Names that are bound to something of PyTorch's, with what that is."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        if isinstance(node, ast.Import):
            found = [a for a in node.names if a.name.partition(".")[0] == "torch"]
            names |= {a.asname or "torch": a.name if a.asname else "torch" for a in found}
    for node in [*ast.walk(tree), *ast.walk(tree)]:
        for target, value in bound(node):
            known = names.get(dotted(value).partition(".")[0])
            if isinstance(target, ast.Name) and known is not None:
                names[target.id] = ".".join([known, *dotted(value).split(".")[1:]])
    return names


def bound(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=True)
            else:
                yield target, node.value


def sites(source: str) -> Iterator[str]:
    """Functions that set an attribute of something of PyTorch's, or of what is not known."""
    tree = ast.parse(source)
    names = of_torch(tree)

    def visit(node: ast.AST, where: str) -> Iterator[str]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            where = f"{where}.{node.name}".removeprefix(".")
        for target, _ in bound(node):
            if isinstance(target, ast.Attribute) and dotted(target).partition(".")[0] in names:
                yield where
        sets = isinstance(node, ast.Call) and dotted(node.func) in ("setattr", "patch.object")
        if sets and ast.unparse(node.args[0]) not in OWN:
            yield where
        for child in ast.iter_child_nodes(node):
            yield from visit(child, where)

    yield from dict.fromkeys(visit(tree, ""))


def test_a_patch_of_pytorch_is_found() -> None:
    text = (
        "import torch\nfrom torch import nn\n\n\ndef put():\n    kind: object = nn.Module\n    {}\n"
    )
    for line in (
        "kind.to = None",
        "torch.rand = None",
        "setattr(torch.Tensor, 'x', 1)",
        "patch.object(torch, 'rand', 1)",
    ):
        assert list(sites(text.format(line))) == ["put"]
    assert not list(sites(text.format("kind = 1")))


def test_every_patch_of_pytorch_is_listed() -> None:
    listed = {s.where for s in STAND_INS}
    undone = {w.replace("__enter__", "__exit__") for w in listed}
    for path in sorted((ROOT / "synthesis").rglob("*.py")):
        name = path.relative_to(ROOT / "synthesis").as_posix()
        source = path.read_text()
        if name.startswith(ELSEWHERE) or "torch" not in source:
            continue
        for where in sites(source):
            around = f"{name}:{where.partition('.')[0]}"
            known = {f"{name}:{where}", around} & (listed | undone)
            assert known, f"{name}:{where} is not in STAND_INS"


def test_what_is_listed_is_there() -> None:
    for stand_in in STAND_INS:
        file, _, function = stand_in.where.partition(":")
        text = (ROOT / "synthesis" / file).read_text()
        assert f"def {function.rpartition('.')[2]}(" in text, stand_in.where
        assert (ROOT / stand_in.compared).exists(), stand_in.compared
