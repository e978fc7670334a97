"""Prompts: what they declare is what they use; renderings are as written down.

`UPDATE_GOLDEN=1 pytest tests/llm/test_prompts.py` writes the golden files anew.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

from shardproof.agent.llm import vocabulary
from shardproof.prompts import PromptError, load, names, render
from shardproof.synthesis.planner.assign import options
from shardproof.synthesis.planner.roles import Module, Param
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.synthesis.repair.edits import KINDS
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.order.checks import CHECKS

GOLDEN = Path(__file__).parent / "golden"
WORD = "B0123456789abcdef"
OPS = [
    {"name": "mm", "signature": "m k, k n -> m n", "attrs": "", "meaning": "Matrix product."},
    {"name": "softmax", "signature": "... -> ...", "attrs": "dim", "meaning": "Rows sum to 1."},
]
HOSTILE = "{{ 7 * 7 }} {% include 'answer.j2' %} {# gone? #} ${HOME} %s {0}"
VALUES: dict[str, dict[str, object]] = {
    "translate": {
        "name": "mlp",
        "inputs": ["input %x: f32[2, 4]", 'param %w: f32[4, 8] "fc.weight"'],
        "outputs": ['output %VALUE "y"'],
        "ops": OPS,
        "source": f"   1| def forward(self, x):\n   2|     return self.fc(x)  {HOSTILE}",
        "cut": 3,
        "problem": "an op that is not known: aten.foo",
        "free": False,
        "refuted": ["output y: the program's is everywhere 2 times the code's"],
    },
    "propose": {
        "mesh": "tp=2; tensor parallelism on tp",
        "cluster": "8 x h100",
        "table": ["column_row: step 4.2 ms"],
        "obstacles": ["vocab: embed: tied weights"],
        "modules": [
            {
                "path": "model.layers.*.mlp.up_proj",
                "kind": "Linear",
                "use": "linear",
                "shape": "16x8",
                "numbers": "128",
                "styles": "replicate|column|row",
            }
        ],
        "tactics": [{"name": "column_row", "meaning": "Pairs."}],
        "styles": [{"name": "row", "meaning": "split inputs"}],
        "streams": [{"name": "R", "meaning": "whole"}],
        "rejected": [{"proposal": "replicate", "why": "too much memory"}],
        "most": 3,
    },
    "configure": {
        "keys": [{"name": "recompute", "takes": "none|full"}],
        "model": "layers 32, hidden 4096",
        "cluster": "64 devices; h100",
        "tokens": "1,024 sequences of 8,192 tokens a step",
        "table": ["tp=8 dp=8: step 7.2 s", HOSTILE],
        "most": 3,
    },
    "repair": {
        "mesh": "tp=2",
        "edits": [{"name": "drop", "takes": "value", "meaning": "Take the op away."}],
        "ops": OPS,
        "contract": "input x tp=S(1)",
        "sequential": "program mlp\n  input %x: f32[2, 4]\n  return %x",
        "beside": "%x: %x as [2, 2@tp 2]",
        "program": "program mlp mesh(tp=2)\n  input %x: f32[2, 2]\n  return %x",
        "finding": f"y[0, 0] on rank tp=0: got 1, one device gives 2\n{HOSTILE}",
        "refuted": [{"edits": "drop %h", "why": "shapes differ"}],
        "banned": ["set mesh_dim"],
        "most": 4,
    },
    "explain": {
        "verdict": "refuted",
        "finding": "deadlock: rank 0 waits for ever",
        "program": "program mlp mesh(tp=2)\n  return %x",
        "checks": [{"name": "deadlock", "means": "Ranks wait for each other."}],
        "question": "Why?",
    },
    "converse": {
        "commands": [
            {"usage": "/plan", "effect": "reads", "summary": "Search for a plan."},
            {"usage": "/apply", "effect": "writes", "summary": "Write the change."},
        ],
        "facts": [{"name": "mesh", "text": "tp=2"}, {"name": "plan", "text": HOSTILE}],
        "modules": [
            {
                "path": "up",
                "kind": "Linear",
                "use": "linear",
                "shape": "16x8",
                "styles": "replicate|column|row",
            }
        ],
        "tactics": [{"name": "column_row", "meaning": "Pairs."}],
        "styles": [{"name": "row", "meaning": "split inputs"}],
        "streams": [{"name": "R", "meaning": "whole"}],
        "most": 2,
        "earlier": [{"asked": "what is up?", "answered": "A linear."}],
        "question": f"Why is up split? {HOSTILE}",
    },
}


@pytest.mark.parametrize("name", names())
def test_rendering_is_as_written_down(name: str) -> None:
    rendered = render(name, boundary=WORD, **VALUES[name])
    text = f"{rendered.system}\n{'=' * 60}\n\n{rendered.user}"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    diff = difflib.unified_diff(expected.splitlines(), text.splitlines(), "golden", "now")
    assert text == expected, "\n".join(diff)


@pytest.mark.parametrize("name", names())
def test_missing_and_extra_variables_are_errors(name: str) -> None:
    values = VALUES[name]
    assert set(load(name).variables) == set(values)
    for gone in values:
        with pytest.raises(PromptError, match=f"missing {gone}"):
            render(name, boundary=WORD, **{k: v for k, v in values.items() if k != gone})
    with pytest.raises(PromptError, match="not declared stray"):
        render(name, boundary=WORD, stray=1, **values)


@pytest.mark.parametrize("name", names())
def test_boundary_is_not_in_any_value(name: str) -> None:
    texts = {k: f"{v} {WORD}" for k, v in VALUES[name].items() if isinstance(v, str)}
    for key, text in texts.items():
        with pytest.raises(PromptError, match="boundary"):
            render(name, boundary=WORD, **{**VALUES[name], key: text})
    with pytest.raises(PromptError, match="at least 8"):
        render(name, boundary="B", **VALUES[name])


def test_values_are_never_templates() -> None:
    rendered = render("translate", boundary=WORD, **VALUES["translate"])
    assert HOSTILE in rendered.user
    assert "49" not in rendered.user


def test_hashes_name_template_and_content() -> None:
    values = VALUES["repair"]
    one = render("repair", boundary=WORD, **values)
    same = render("repair", boundary="Bfedcba9876543210", **values)
    other = render("repair", boundary=WORD, **{**values, "most": 5})
    assert one.user != same.user
    assert one.rendering == same.rendering != other.rendering
    assert (
        one.template
        == other.template
        != render("explain", boundary=WORD, **VALUES["explain"]).template
    )


def test_unknown_prompt_is_named() -> None:
    with pytest.raises(PromptError, match=r"no prompt '\.\./secret'"):
        load("../secret")


def test_vocabularies_are_the_registries() -> None:
    told = {e["name"] for e in vocabulary.one_device_ops()}
    kinds = {name: op.kind for name, op in REGISTRY.items()}
    assert told == {n for n, k in kinds.items() if k not in ("collective", "movement", "control")}
    insertable = {e["name"] for e in vocabulary.insertable_ops()}
    assert {"all_reduce", "all_gather", "reduce_scatter", "mul_scalar", "permute"} <= insertable
    assert not {"mm", "add", "scan", "concat", "full"} & insertable
    assert [e["name"] for e in vocabulary.edits()] == list(KINDS)
    assert [e["name"] for e in vocabulary.tactics()] == sorted(TACTICS)
    assert [e["name"] for e in vocabulary.checks()] == [c.name for c in CHECKS]
    everything = [
        *vocabulary.edits(),
        *vocabulary.tactics(),
        *vocabulary.checks(),
    ]
    assert all(all(e.values()) for e in everything)


def test_prompts_are_short_enough_to_pay_for() -> None:
    """Four thousand tokens of rules and vocabulary at most."""
    ops = {"translate": vocabulary.one_device_ops(), "repair": vocabulary.insertable_ops()}
    edits = vocabulary.edits()
    for name, words in ops.items():
        values = {**VALUES[name], "ops": words} | ({"edits": edits} if name == "repair" else {})
        assert len(render(name, boundary=WORD, **values).system) < 14_000


def test_every_style_that_fits_is_explained() -> None:
    weight = Param("w", "w", (8, 8), False)
    fits = {
        style
        for use in ("linear", "embedding", "other")
        for parts in (1, 2)
        for style in options(Module("m", "M", use, parts=parts, params=[weight]), 2)
    }
    assert fits <= set(vocabulary.STYLES)
