"""Changes of source: what is tried first, and that nothing else of a file is touched."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from shardproof.synthesis.repair.in_source import Module, Rewrite, SourceFile, read_module
from shardproof.synthesis.repair.plan_entries import plan_entries, rules
from shardproof.synthesis.repair.rewrites import Hint, rewrites

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "check"


def tried(
    text: dict[str, str], hint: Hint, wrong: tuple[str, ...] = (), finish: str = ""
) -> list[Rewrite]:
    """Changes of some files with one place at fault."""
    files = {n: SourceFile(n, t) for n, t in text.items()}
    params = ("up.weight", "down.weight", "down.bias")
    found = Module(files, {"dp": 2, "tp": 2}, params, wrong, bool(wrong), finish)
    return rewrites(found, [hint])


def test_files_of_a_module_are_those_that_it_imports() -> None:
    assert list(read_module(EXAMPLES, "wrong.py")) == [
        *("wrong.py", "parallel.py", "regions.py"),
    ]


def test_a_bias_within_a_sum_is_added_after_it() -> None:
    files = {n: f.text for n, f in read_module(EXAMPLES, "wrong.py").items()}
    first = tried(files, Hint("regions.py", 28, ("order",)))[:3]
    lines = {f.text.replace(files[f.file], "") and f.tactic for f in first}
    assert lines == {"order"}
    assert any("y = Reduce.apply(y, self.group) + self.down.bias" in f.text for f in first)
    assert all(len(f.text.splitlines()) == len(files[f.file].splitlines()) for f in first)


BODY = """import torch.distributed as dist

def finish(model):  # after the backward
    dist.all_reduce(model.up.weight.grad,  group=model.group)
    model.group = mesh.get_group("dp")
"""


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (("drop",), "def finish(model):  # after the backward\n    model.group = mesh"),
        (("reduce",), "model.up.weight.grad,  group=model.group, op=dist.ReduceOp.AVG)"),
        (("group",), 'mesh.get_group("tp")'),
        (("finish",), "for p in (model.down.bias,):\n        dist.all_reduce(p.grad, group=model"),
    ],
)
def test_changes_of_one_line_leave_the_rest_as_it_is(hint: tuple[str, ...], expected: str) -> None:
    first = tried({"a.py": BODY}, Hint("a.py", 4, hint), ("down.bias",), "finish")[:4]
    found = [f for f in first if expected in f.text]
    assert found, [f.text for f in first]
    assert "# after the backward" in found[0].text


PLAN = """from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

PLAN = {"up": ColwiseParallel(), "down": ColwiseParallel()}
"""


def test_entries_of_a_plan() -> None:
    texts = [r.text for r in tried({"a.py": PLAN}, Hint("b.py", 3, ("plan",)))]
    assert any('"down": RowwiseParallel()' in t for t in texts)
    assert any('PLAN = {"up": ColwiseParallel()}' in t for t in texts)
    imported = [t for t in texts if "RowwiseParallel, SequenceParallel" in t]
    assert imported
    assert all(ast.parse(t) for t in texts)


RULES = """PLAN = {
    "layers.*.up": "colwise",
    "layers.*.down": "colwise",
}
"""


def test_rules_of_a_plan_are_by_pattern() -> None:
    given = {"layers.*.up": "colwise", "norm": "replicate"}
    found = list(rules(given, ["layers.3.up.weight", "layers.0.up.bias", "layers.0.down.weight"]))
    both = dict.fromkeys(("layers.*.up", "layers.*.down"), "replicated_with_grad_allreduce")
    assert found[0] == {**given, **both}
    assert {**given, "layers.*.up": "rowwise"} in found
    assert {"norm": "replicate"} in found
    assert given not in found
    assert {} not in rules({"norm": "replicate"}, [])


def test_rules_in_a_file_are_by_pattern() -> None:
    files = {"a.py": SourceFile("a.py", RULES)}
    params = ("lm.layers.3.up.weight", "lm.layers.3.down.weight", "lm.layers.3.norm.weight")
    found = [r.text for r in plan_entries(files, params, params[2:])]
    assert any('"layers.*.down": "rowwise",' in t for t in found)
    assert any("up" not in t for t in found)
    assert any('"layers.*.norm": "sequence_parallel"' in t for t in found)


def test_nothing_is_changed_that_cannot_be_parsed() -> None:
    file = SourceFile("a.py", "if x:\n    f(y)\n")
    stmt = file.tree.body[0].body[0]  # pyright: ignore[reportAttributeAccessIssue]
    gone = file.without(stmt)
    assert gone is not None
    assert file.spliced(gone) == "if x:\n    pass\n"
    assert file.spliced(file.put(stmt, "f(")) is None


LEFT = """import torch.distributed as dist

class Layer(nn.Module):
    def __init__(self, tp_group):
        self.group = tp_group

    def forward(self, x):
        rows = x.shape[0] * self.group.size()
        y = self.up(x)
        return (x * rows) + self.down.bias

class Other(nn.Module):
    def __init__(self, dp_group):
        self.dp = dp_group
"""


def test_a_local_value_that_nothing_reads_joins_what_is_made_after_it() -> None:
    first = tried({"a.py": LEFT}, Hint("a.py", 10))[:2]
    assert "return (x * rows) + self.down.bias + y" in first[0].text
    assert "return (x * rows) + self.down.bias - y" in first[1].text
    again = LEFT.replace("y = self.up(x)", "y = self.up(x)\n        y = summed(y)")
    assert (
        "return (x * rows) + self.down.bias + y" in tried({"a.py": again}, Hint("a.py", 11))[0].text
    )
    read = LEFT.replace("(x * rows)", "(x * rows) + y")
    assert not [r for r in tried({"a.py": read}, Hint("a.py", 10)) if r.tactic == "operand"]


def test_counts_are_not_summed_and_groups_are_those_of_the_class() -> None:
    texts = [r.text for r in tried({"a.py": LEFT}, Hint("a.py", 9, ("insert",)))]
    assert any("dist.all_reduce(y, group=self.group)" in t for t in texts)
    assert not any("all_reduce(rows" in t for t in texts)
    assert not any("self.dp)" in t for t in texts)


def test_a_number_that_ranks_share_is_divided() -> None:
    text = LEFT.replace("self.group = tp_group", "self.group, self.rows = tp_group, 16")
    texts = [r.text for r in tried({"a.py": text}, Hint("a.py", 5, ("rows",)))]
    assert any("= tp_group, 16 // tp_group.size()" in t for t in texts)
    assert not any("tp_group // tp_group" in t for t in texts)
