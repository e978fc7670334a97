"""Pieces of the emitter: styles, groups, diffs, facts, literals."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest

from shardproof.synthesis.emit import facts, snippets, supported
from shardproof.synthesis.emit.groups import only_feeds
from shardproof.synthesis.emit.imports import import_lines
from shardproof.synthesis.emit.library_file import file_stem, literal
from shardproof.synthesis.emit.patch import EmitError, check_applies, patch, unified
from shardproof.synthesis.emit.styles import style_of
from shardproof.synthesis.frontends.torch.captured import dump, load
from shardproof.synthesis.planner.plan import ModulePlan

FEEDS = """
def forward(self, x, mask=None):
    shape = (*x.shape[:-1], -1, 8)
    q = self.q(x).view(shape)
    k = self.k(x).view(shape)
    return self.o(q * k)
"""


def test_input_that_feeds_columns_alone_may_be_converted_once() -> None:
    assert only_feeds(FEEDS, "x", frozenset({"q", "k"}))


def test_input_with_a_residual_is_not_converted_for_all() -> None:
    assert not only_feeds(FEEDS.replace("q * k", "q * k) + (x"), "x", frozenset({"q", "k"}))


def test_input_of_a_module_that_is_not_column_is_not_converted() -> None:
    assert not only_feeds(FEEDS, "x", frozenset({"q"}))


@pytest.mark.parametrize("snippet", snippets.SNIPPETS.values(), ids=lambda s: s.name)
def test_snippets_are_short_python(snippet: snippets.Snippet) -> None:
    tree = ast.parse(snippet.text)
    assert [getattr(n, "name", "") for n in tree.body] == [snippet.name]
    assert max(map(len, snippet.text.split("\n"))) <= 100


def test_snippets_import_every_name_they_use() -> None:
    for snippet in snippets.SNIPPETS.values():
        tree = ast.parse(snippet.text)
        bound = {n.split(" as ")[-1] or m for m, n in snippet.imports}
        bound |= {*snippet.needs, snippet.name}
        loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _stores(n)}
        stored |= {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
        named = ast.FunctionDef | ast.ExceptHandler
        stored |= {n.name for n in ast.walk(tree) if isinstance(n, named)}
        known = bound | stored | set(dir(builtins))
        assert loaded <= known, (snippet.name, loaded - known)


def _stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def test_style_that_does_not_exist_for_a_class_is_an_error() -> None:
    with pytest.raises(EmitError, match="no column style for Conv2d; it exists for Conv, Conv1D"):
        style_of(ModulePlan("c", "Conv2d", "column"), "Conv2d")
    assert not supported("Conv2d", "column")
    assert supported("Conv1D", "fused_column")


def test_norm_on_head_shards_is_a_sequence_parallel_of_that_dim() -> None:
    style = style_of(ModulePlan("q_norm", "Norm", "sequence", "S(2)", "S(2)"), "Norm")
    assert (style.name, style.arguments[0]) == ("SequenceParallel", "sequence_dim=2")


def test_diff_of_a_file_without_final_newline_applies() -> None:
    check_applies(patch({"a/m.py": ("x = 1", "x = 2")}, (), ""))
    check_applies(patch({"n.py": (None, "x = 2\n")}, (), ""))
    assert "\\ No newline at end of file" in unified("m.py", "x = 1", "x = 2")


def test_form_feed_is_no_line_end() -> None:
    check_applies(patch({"m.py": ("a = 1\n\x0c\nb\u2028 = 2\n", "a = 1\n\x0c\nb = 3\n")}, (), ""))


def test_facts_survive_json() -> None:
    argument = facts.Argument(-1, "hidden", (2, 3), True)
    module = facts.ModuleFact(
        "a.0.b", "Linear", "Linear", {"weight": (2, 3)}, {"n": 1}, (argument,), 0, "tensor", (2, 3)
    )
    forwards = {"Linear": facts.ForwardFact("f.py", 3, "def forward(self): ...")}
    whole = facts.ModelFacts(
        "m.py:M", "M", {"n": 1}, "", (module,), forwards, "Loss", (("a", "b"),)
    )
    assert load(facts.ModelFacts, dump(facts.ModelFacts, whole)) == whole
    assert whole.find("a.*.b") == module
    assert whole.find("a.b") is None


def test_imports_already_bound_are_left_out() -> None:
    imports = [("torch", "nn"), ("torch", ""), ("functools", "partial"), ("torch.nn", "f as F")]
    assert import_lines(imports, {"nn", "F"}) == (
        ["from functools import partial"],
        ["import torch"],
    )


def test_literals_read_back() -> None:
    value = {"a": None, "b": [1, 2.5, True], "c": {"d": 'e"f'}, "g": "x", "h": {}}
    assert ast.literal_eval(literal(value)) == value


def test_file_is_named_after_the_model() -> None:
    assert file_stem("LlamaForCausalLM") == "parallel_llama"
    assert Path(file_stem("GPT2LMHeadModel")).name == "parallel_gpt2"
