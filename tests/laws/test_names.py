"""Ops are named where they are declared, and elsewhere only by rules about those very ops.

A list of ops that share something is a class (`verifier/ops/classes.py`), which their declarations
fill. What is left below may shrink, and each room says why it names ops at all.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.ops import REGISTRY, classes, facets
from tests.laws.test_traits import WORDS, applications, draw

ROOT = Path(__file__).parents[2]
ROOMS = ("agent", "prompts", "synthesis")
"""The verifier has a law of its own in `test_traits.py`; `shardproof/compat` builds programs."""
APART = (
    "synthesis/frontends/tir/",  # a language with words of its own
    "synthesis/frontends/torch/aten/",  # ops of PyTorch, and what they are built of
    "synthesis/guard/",  # calls of process groups
)
GRAPHS = "synthesis/frontends/torch/"
"""Files right here read graphs of PyTorch, whose ops have some of the same names."""
PLAIN = {"where", "log", "mean", "dropout", "wait"}
"""Words of every program: keys of messages, levels, losses."""
BUILDS = ("add", "add_node", "made")
"""Methods whose first argument is an op to be built or looked for: a rule about that very op."""

NAMED: dict[str, dict[str, str]] = {
    "programs that are written: what is built": {
        "synthesis/emit/loss.py": "cross_entropy",
        "synthesis/lower/redistribute.py": (
            "all_gather all_reduce all_to_all reduce_scatter shard_slice"
        ),
    },
    "texts and calls of ranks: which message or collective a line is": {
        "agent/check/command.py": "send",
        "agent/check/judging.py": "add_scalar",
        "agent/check/losses.py": "all_reduce mul_scalar",
        "synthesis/frontends/torch/rolling/owned.py": (
            "add all_gather all_reduce all_to_all cast mul_scalar pad reduce_scatter shard_slice"
        ),
        "synthesis/execute/reading.py": "all_reduce",
        "synthesis/frontends/rank_programs/build.py": "merge send",
        "synthesis/frontends/rank_programs/classes.py": "pad",
        "synthesis/frontends/rank_programs/match.py": "recv send",
        "synthesis/frontends/rank_programs/merge_classes.py": "gather merge recv reduce_to send",
        "synthesis/frontends/rank_programs/repeated.py": "merge",
        "synthesis/frontends/rank_programs/symbolic.py": "broadcast merge pad recv scatter send",
        "synthesis/frontends/rank_programs/verify.py": "send",
        "synthesis/frontends/rank_programs/wording.py": "recv send",
        "synthesis/frontends/rank_programs/write.py": "recv send",
        "synthesis/frontends/torch/ranks/averaging.py": "detach",
        "synthesis/frontends/torch/ranks/buckets.py": (
            "add all_gather all_reduce cast reduce_scatter"
        ),
        "synthesis/frontends/torch/ranks/changing.py": (
            "all_gather all_reduce all_to_all broadcast gather recv reduce_scatter scatter send"
        ),
        "synthesis/frontends/torch/ranks/collectives.py": "all_reduce broadcast recv send",
        "synthesis/frontends/torch/ranks/constant_ids.py": "gather ge gt le lt",
        "synthesis/frontends/torch/ranks/gathered_sums.py": "add add_scalar all_gather",
        "synthesis/frontends/torch/ranks/in_time.py": "recv send",
        "synthesis/frontends/torch/ranks/join.py": (
            "add all_gather all_reduce all_to_all mul_scalar pad reduce_scatter"
        ),
        "synthesis/frontends/torch/ranks/counts.py": "add detach eq ge gt le logical_not lt mul ne",
        "synthesis/frontends/torch/ranks/logged.py": "eq ge gt le lt ne",
        "synthesis/frontends/torch/ranks/predicated.py": "detach",
        "synthesis/frontends/torch/ranks/meanings.py": "all_gather all_reduce reduce_scatter",
        "synthesis/frontends/torch/ranks/micro_batches.py": (
            "add all_gather all_reduce cast concat pad shard_pad shard_slice slice"
        ),
        "synthesis/frontends/torch/ranks/pads.py": "pad",
        "synthesis/frontends/torch/ranks/preconditions.py": (
            "all_gather all_reduce all_to_all broadcast gather recv reduce_scatter scatter send"
        ),
        "synthesis/frontends/torch/ranks/rooted.py": "broadcast",
        "synthesis/frontends/torch/ranks/unequal_parts.py": (
            "add all_gather all_reduce cast div maximum mul mul_scalar neg pad reduce_scatter"
        ),
        "synthesis/frontends/torch/ranks/states.py": "mul",
        "synthesis/frontends/torch/ranks/tracing.py": "all_gather",
        "synthesis/frontends/torch/ranks/shared_parts.py": "mm mul pad shard_pad shard_slice",
    },
    "shapes of programs that stand for something: attention, experts, fused weights": {
        "synthesis/frontends/torch/rolling/recompute.py": "all_gather all_to_all shard_slice",
        "synthesis/kernels/found.py": "amax bmm exp index_add take",
        "synthesis/optimum/space.py": "all_gather",
        "synthesis/planner/cost.py": "all_gather all_reduce all_to_all",
        "synthesis/planner/describe.py": "add all_gather all_reduce all_to_all mul reduce_scatter",
        "synthesis/planner/arguments.py": "shard_slice",
        "synthesis/planner/expressible.py": "add all_gather all_reduce cast mm shard_slice",
        "synthesis/planner/literal.py": "mul_scalar take",
        "synthesis/planner/roles.py": "add bmm sdpa",
        "synthesis/planner/shares.py": "bmm",
        "synthesis/planner/uses.py": "add bmm cast mm take",
    },
    "attributes and factors of these very ops on a rank": {
        "synthesis/lower/blocks.py": "index_add put_along take",
        "synthesis/lower/emission.py": "div reciprocal",
        "synthesis/lower/local_attributes.py": "iota pad",
        "synthesis/lower/operands.py": "index_add mul reduce_scatter",
    },
    "wrong programs: what is written for what by mistake": {
        "agent/repair/sources.py": "all_gather all_reduce",
        "synthesis/repair/diagnosis.py": "bmm",
        "synthesis/repair/guided.py": (
            "add all_gather all_reduce all_to_all mul_scalar reduce_scatter shard_slice"
        ),
        "synthesis/repair/culprits.py": "all_to_all broadcast gather recv scatter send",
        "synthesis/repair/looked.py": "all_reduce",
        "synthesis/repair/near.py": (
            "add all_gather all_reduce all_to_all amax broadcast div eq exp expm1 ge gelu "
            "gelu_grad gelu_tanh gelu_tanh_grad gt iota le log1p lt maximum merge minimum mul "
            "mul_scalar ne on_coord reciprocal reduce_scatter relu relu_grad ring_shift rsqrt "
            "shard_slice sigmoid silu silu_grad sqrt sub tanh"
        ),
        "synthesis/repair/node_changes.py": "all_gather all_reduce reduce_scatter",
        "synthesis/repair/propose.py": "all_reduce mul_scalar reduce_scatter",
        "synthesis/repair/search.py": "on_coord",
    },
    "words for readers, and activations by name": {
        "agent/report/facts.py": "add",
        "agent/report/summary.py": "cast",
        "agent/translation/binding.py": "detach",
        "synthesis/price/model.py": "gelu relu",
        "synthesis/strategy/shape.py": "gelu",
    },
}
"""By reason and module the ops that it names."""
LISTS: dict[str, int] = {
    "agent/repair/sources.py": 1,
    "synthesis/emit/extents.py": 1,
    "synthesis/frontends/torch/rolling/owned.py": 2,
    "synthesis/frontends/rank_programs/classes.py": 1,
    "synthesis/frontends/rank_programs/match.py": 1,
    "synthesis/frontends/rank_programs/merge_classes.py": 1,
    "synthesis/frontends/rank_programs/symbolic.py": 2,
    "synthesis/frontends/rank_programs/write.py": 1,
    "synthesis/frontends/torch/ranks/bounds.py": 1,
    "synthesis/frontends/torch/ranks/collectives.py": 2,
    "synthesis/frontends/torch/ranks/constant_ids.py": 1,
    "synthesis/frontends/torch/ranks/gathered_sums.py": 1,
    "synthesis/frontends/torch/ranks/in_time.py": 1,
    "synthesis/frontends/torch/ranks/join.py": 4,
    "synthesis/frontends/torch/ranks/counts.py": 1,
    "synthesis/frontends/torch/ranks/meanings.py": 1,
    "synthesis/frontends/torch/ranks/buckets.py": 2,
    "synthesis/frontends/torch/ranks/micro_batches.py": 2,
    "synthesis/frontends/torch/ranks/unequal_parts.py": 5,
    "synthesis/frontends/torch/ranks/shared_parts.py": 3,
    "synthesis/planner/describe.py": 2,
    "synthesis/planner/extents.py": 1,
    "synthesis/planner/expressible.py": 1,
    "synthesis/planner/literal.py": 1,
    "synthesis/planner/roles.py": 1,
    "synthesis/planner/uses.py": 3,
    "synthesis/price/model.py": 1,
    "synthesis/repair/guided.py": 1,
    "synthesis/repair/culprits.py": 1,
    "synthesis/repair/near.py": 13,
    "synthesis/repair/node_changes.py": 3,
}
"""How many collections in a module hold more than one op: for each the reason above holds."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            graphs = name.startswith(GRAPHS) and "/" not in name.removeprefix(GRAPHS)
            if not name.startswith(APART) and not graphs:
                yield name, ast.parse(path.read_text(encoding="utf-8"))


def op_of(node: ast.AST | None) -> str:
    """The op that a constant names, or ''."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) and value in REGISTRY else ""


def named(tree: ast.Module) -> set[str]:
    built = {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args
        and isinstance(node.func, ast.Attribute) and node.func.attr in BUILDS
    }  # fmt: skip
    names = {op_of(node) for node in ast.walk(tree) if id(node) not in built}
    return names - WORDS - PLAIN - {""}


def lists(tree: ast.Module) -> int:
    """Collections of more than one op."""
    count = 0
    for node in ast.walk(tree):
        match node:
            case ast.Tuple() | ast.Set() | ast.List():
                items: list[ast.expr | None] = [*node.elts]
            case ast.Dict():
                items = [*node.keys]
            case ast.MatchOr():
                items = [p.value for p in node.patterns if isinstance(p, ast.MatchValue)]
            case _:
                continue
        count += len({op_of(i) for i in items} - {""}) > 1
    return count


def test_ops_are_named_by_rules_about_them() -> None:
    allowed = {name: set(ops.split()) for part in NAMED.values() for name, ops in part.items()}
    found = {name: named(tree) - allowed.get(name, set()) for name, tree in modules()}
    assert {name: ops for name, ops in found.items() if ops} == {}


def test_lists_of_ops_are_classes() -> None:
    found = {name: lists(tree) for name, tree in modules()}
    assert {name: n for name, n in found.items() if n > LISTS.get(name, 0)} == {}


def test_no_reason_is_left_without_its_module() -> None:
    there = {name for name, _ in modules()}
    assert {name for part in NAMED.values() for name in part} | set(LISTS) <= there


def test_the_checker_loads_no_description_of_ops() -> None:
    """Classes are filled by what provers believe of ops."""
    code = (
        "import sys, shardproof.verifier.checker; print('shardproof.verifier.ops' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", list(classes.REARRANGING))
def test_entries_are_rearranged(name: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(0)
    for form, attrs in applications(op):
        (x,) = draw(op, form, rng)
        y = np.asarray(facets(name).meaning(Floats(), x, **attrs))
        assert sorted(y.reshape(-1)) == sorted(x.reshape(-1))


@pytest.mark.parametrize("name", list(classes.TRANSPARENT))
def test_an_entry_is_an_entry_times_a_number(name: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(0)
    for form, attrs in applications(op):
        x = np.asarray(draw(op, form, rng)[0], np.float64)
        if attrs.get("dtype", "f32") in ("bool", "i64", "i32"):
            continue
        for at in range(x.size):
            one = np.zeros(x.size)
            one[at] = x.reshape(-1)[at]
            y = np.asarray(facets(name).meaning(Floats(), one.reshape(x.shape), **attrs))
            assert np.count_nonzero(y) <= 1
