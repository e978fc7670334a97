"""Pieces of the emitter: styles, groups, diffs, facts, literals."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace
from pathlib import Path

import pytest

from shardproof.synthesis.emit import facts, snippets, supported
from shardproof.synthesis.emit.groups import only_feeds
from shardproof.synthesis.emit.imports import import_lines
from shardproof.synthesis.emit.inplace import written_into
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


def test_what_stands_before_a_module_that_works_in_place_gives_a_tensor_of_its_own() -> None:
    linear = [facts.ModuleFact(f"net.{i}", "Linear", "Linear") for i in (0, 2)]
    relu = facts.ModuleFact("net.1", "ReLU", "ReLU", writes=True)
    model = facts.ModelFacts("m.py:M", "M", {}, modules=(linear[0], relu, linear[1]))
    planned = [ModulePlan(m.path, "Linear", "column") for m in linear]
    assert written_into(model, planned) == {"net.0"}
    plain = replace(model, modules=(linear[0], replace(relu, writes=False), linear[1]))
    assert written_into(plain, planned) == set()


def test_the_result_of_one_module_of_a_list_may_be_changed() -> None:
    norms = [facts.ModuleFact(f"norms.{i}", "LayerNorm", "LayerNorm") for i in (0, 1)]
    text = "def forward(self, x):\n    y = self.norms[0](x)\n    y *= 2\n    return y\n"
    planned = [ModulePlan("norms.*", "LayerNorm", "replicate")]
    for body, expected in ((text, {"norms.*"}), (text.replace("y *=", "z ="), set[str]())):
        forwards = {"M": facts.ForwardFact("m.py", 1, body)}
        modules = (facts.ModuleFact("", "M", "M"), *norms)
        model = facts.ModelFacts("m.py:M", "M", {}, modules=modules, forwards=forwards)
        assert written_into(model, planned) == expected


def test_what_is_changed_under_another_name_is_a_tensor_of_its_own() -> None:
    table = facts.ModuleFact("words", "Embedding", "Embedding")
    text = "def forward(self, x):\n    h = self.words(x)\n    y = h\n    y += 1\n    return y\n"
    planned = [ModulePlan("words", "Embedding", "vocab")]
    for body, expected in ((text, {"words"}), (text.replace("y +=", "z ="), set[str]())):
        forwards = {"M": facts.ForwardFact("m.py", 1, body)}
        modules = (facts.ModuleFact("", "M", "M"), table)
        model = facts.ModelFacts("m.py:M", "M", {}, modules=modules, forwards=forwards)
        assert written_into(model, planned) == expected
