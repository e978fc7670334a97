"""Properties over many texts: source is cut to code and nothing is lost, edits end in a program."""

from __future__ import annotations

import ast
import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from shardproof.agent.llm.dialogue import Malformed, Read
from shardproof.agent.llm.hygiene import clean, one_line
from shardproof.agent.llm.repairing import repair
from shardproof.agent.llm.source import CUT, LONGEST_STRING, prepared
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.repair.edits import KINDS
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.text.parser import parse_text, to_text
from tests.llm import tasks
from tests.llm.scripted import Scripted

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "agent").rglob("*.py"))[::3] + sorted((ROOT / "examples").rglob("*.py"))


class _Without(ast.NodeTransformer):
    """No strings that are statements, and one string for all long ones."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str | bytes):
            return ast.Expr(ast.Constant(...))
        if isinstance(node.value, ast.Constant) and node.value.value is ...:
            return ast.Expr(ast.Constant(...))
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant("")

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if isinstance(node.value, str | bytes) else node


def skeleton(text: str) -> str:
    return ast.dump(_Without().visit(ast.parse(text)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_code_is_the_same_without_its_words(path: Path) -> None:
    source = path.read_text()
    found = prepared(source, path.name, 10**7)
    lines = [""] * (source.count("\n") + 1)
    for line in found.text.split("\n"):
        number, _, code = line.partition("| ")
        lines[int(number) - 1] = code
    rebuilt = "\n".join(lines)
    assert skeleton(rebuilt) == skeleton(source)
    assert "#" not in "".join(line for line in lines if '"' not in line and "'" not in line)
    for node in ast.walk(ast.parse(rebuilt)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert node.value == CUT or len(node.value) <= LONGEST_STRING


PIECES = st.sampled_from(
    ["x", " ", "\n", '"', "\'", '"""', "#", "(", ")", "f", "{", "}", "\\", "=", "1", ":", "    ",
     "def f():\n", "\t", "\r", "\f", "\u2028", "é", "\u202e", "b", "if x:", "\x00", "\\d"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_text_is_code_or_a_located_error(source: str) -> None:
    try:
        found = prepared(source, "m.py", 1000)
    except InputError:
        return
    assert clean(found.text) == found.text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(source)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=60))
def test_clean_text_stays_clean(text: str) -> None:
    once = clean(text)
    assert clean(once) == once
    assert "\x1b" not in once
    assert "\n" not in one_line(text)


VALUES = st.sampled_from(["x", "w", "y", "z", "nope", "", "%y", "y/z", "output:z"])
ATTRS = st.sampled_from(
    ["", "mesh_dim=tp, reduce=sum", "mesh_dim=tp, dim=0", "reduce=max", "dim=1", "value=1/2",
     "dims=[1, 0]", "shape=[2, 3]", "mesh_dim=ep", "dim=99", "lo=0, hi=1, dim=0", "k=-1", "{", "="]
)  # fmt: skip
EDIT = st.fixed_dictionaries(
    {
        "edit": st.sampled_from(sorted(KINDS)),
        "value": VALUES,
        "op": st.sampled_from(["", *sorted(REGISTRY)]),
        "attrs": ATTRS,
        "operands": st.lists(VALUES, max_size=2),
        "index": st.integers(-1, 2),
        "uses": st.lists(VALUES, max_size=1),
        "where": st.sampled_from(["", "tp=0", "tp=[0, 1]", "pp=0"]),
    }
)
TASK = tasks.mending()


@settings(max_examples=300, deadline=None)
@given(st.lists(EDIT, min_size=1, max_size=3))
def test_any_edits_end_in_a_program_or_a_located_error(edits: list[dict[str, object]]) -> None:
    reply = json.dumps({"diagnosis": "", "edits": edits})
    found = repair(Scripted([reply, reply]), TASK)
    match found:
        case Read(value=repaired):
            assert parse_text(to_text(repaired.program)) == repaired.program
            assert repaired.program.inputs == tasks.BROKEN.inputs
            assert [(o.role, o.path) for o in repaired.program.outputs] == [("output", "z")]
        case Malformed():
            assert found.problems[0].startswith("edits")
        case _:
            raise AssertionError(found)
