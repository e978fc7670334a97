"""What declarations claim of ops holds on numbers, and nothing else in the verifier names ops."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import FUNCTIONS, Floats
from shardproof.verifier.kernel.layout import FOLDS
from shardproof.verifier.kernel.program.registry import Op
from shardproof.verifier.kernel.program.types import Affine, Mesh
from shardproof.verifier.ops import REGISTRY, facets
from shardproof.verifier.ops.bounds import Bounded
from tests.laws.samples import Form, forms

MESH = Mesh.of(tp=2)
LOCAL = sorted(
    n
    for n, op in REGISTRY.items()
    if op.kind in ("map", "einsum", "reduce", "view", "index", "rows")
)
LOWEST = {"positive": 0.1, "not zero": 0.1, "not negative": 0.0, "above -1": -0.9}


def applications(op: Op) -> Iterator[tuple[Form, dict[str, Any]]]:
    for form in forms(op, MESH):
        for attrs in islice(form.attrs(form.shapes, MESH), 8):
            if not any(isinstance(v, Affine) for v in attrs.values()):
                yield form, op.with_defaults(attrs)


def draw(
    op: Op, form: Form, rng: np.random.Generator, low: float = -3, high: float = 3
) -> list[Array]:
    """Operands, the last of them such that there is a value."""
    out: list[Array] = []
    for k, (shape, dtype) in enumerate(zip(form.shapes, form.dtypes, strict=True)):
        if dtype == "bool":
            out.append(rng.integers(2, size=shape).astype(bool))
        elif dtype == "i64":
            signed = k != op.traits.index
            out.append(rng.integers(math.ceil(low) if signed else 0, 3, size=shape))
        else:
            last = k == len(form.shapes) - 1
            least = max(low, LOWEST.get(op.traits.needs, low)) if last else low
            out.append(rng.uniform(least, high, size=shape))
    return out


def result(op: Op, operands: list[Array], attrs: dict[str, Any]) -> Array:
    return np.asarray(facets(op.name).meaning(Floats(), *operands, **attrs))


def claiming(claim: str) -> list[str]:
    return [n for n in LOCAL if _claim(n, claim) not in (None, "", (), False)]


def _claim(name: str, claim: str) -> object:
    known = REGISTRY[name].traits
    return getattr(known if hasattr(known, claim) else facets(name), claim)


def unused(op: Op, form: Form, attrs: dict[str, Any]) -> str:
    """The entry of an operand without which there is a value; empty where there is none."""
    operands = draw(op, form, np.random.default_rng(0))
    for k, operand in enumerate(operands if result(op, operands, attrs).size else ()):
        for at in np.ndindex(operand.shape if operand.dtype.kind == "f" else (0,)):
            without = [x.copy() for x in operands]
            without[k][at] = np.nan
            if not np.isnan(result(op, without, attrs)).any():
                return f"{list(at)} of operand {k}"
    return ""


@pytest.mark.parametrize("name", claiming("strict"))
def test_every_entry_of_every_operand_is_used(name: str) -> None:
    for form, attrs in applications(REGISTRY[name]):
        assert not unused(REGISTRY[name], form, attrs)


@pytest.mark.parametrize("name", claiming("needs"))
def test_there_is_a_value_where_the_last_operand_is_as_needed(name: str) -> None:
    op, least = REGISTRY[name], {**LOWEST, "not zero": 0.0, "positive": 0.0, "above -1": -1.0}
    for form, attrs in applications(op):
        bound, needs = least[op.traits.needs], op.traits.needs
        for value in (bound - 0.5, bound, bound + 1e-9, 3.0):
            ok = value > bound or needs == "not negative" or (needs == "not zero" and value)
            given = draw(op, form, np.random.default_rng(0), low=0.5)
            with np.errstate(all="ignore"):
                made = result(op, [*given[:-1], np.full(form.shapes[-1], value)], attrs)
            there = bool(np.isfinite(made).all())
            assert there or not (ok and value >= bound)
            assert not there or ok or name == "pow"


@pytest.mark.parametrize("name", claiming("sign"))
def test_the_sign_of_results(name: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(0)
    for form, attrs in applications(op):
        for shown in (lambda x: x, np.rint):
            operands = [shown(x) if x.dtype.kind == "f" else x for x in draw(op, form, rng)]
            with np.errstate(all="ignore"):
                made = result(op, operands, attrs)
            made = made[np.isfinite(made)]
            assert np.all(made > 0 if op.traits.sign else made >= 0)


@pytest.mark.parametrize("name", claiming("keeps"))
def test_the_least_sign_of_operands_is_kept(name: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(0)
    for form, attrs in applications(op):
        made = result(op, draw(op, form, rng, low=0.0), attrs)
        assert np.all(made >= 0)
        if op.traits.keeps == 1 and "bool" not in form.dtypes[1:] and "i64" not in form.dtypes:
            assert np.all(result(op, draw(op, form, rng, low=0.1), attrs) > 0)


@pytest.mark.parametrize("name", claiming("rises"))
def test_results_rise_with_operands(name: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(0)
    for (form, attrs), k in [(a, k) for a in applications(op) for k in facets(op.name).rises]:
        operands = draw(op, form, rng)
        more = list(operands)
        more[k] = operands[k] + abs(draw(op, form, rng)[k])
        assert np.all(result(op, more, attrs) >= result(op, operands, attrs))


@pytest.mark.parametrize("name", claiming("symmetric"))
def test_operands_change_places(name: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(0)
    for form, attrs in applications(op):
        operands = draw(op, form, rng)
        assert np.array_equal(result(op, operands, attrs), result(op, operands[::-1], attrs))


@pytest.mark.parametrize("name", claiming("folds"))
def test_folds_are_passed_through(name: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(0)
    take = {"max": np.maximum, "min": np.minimum, "sum": np.add}
    assert set(take) == set(FOLDS)
    for (form, attrs), fold in [(a, f) for a in applications(op) for f in facets(op.name).folds]:
        a, b = draw(op, form, rng), draw(op, form, rng)
        both = [take[fold](x, y) for x, y in zip(a, b, strict=True)]
        assert np.array_equal(
            result(op, both, attrs), take[fold](result(op, a, attrs), result(op, b, attrs))
        )


@pytest.mark.parametrize("name", claiming("bounds"))
def test_results_lie_within_bounds(name: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(0)
    bounds = facets(op.name).bounds
    assert bounds is not None
    for form, attrs in applications(op):
        for low, high in ((-3.0, 3.0), (0.5, 2.0), (-2.0, -1.0)):
            if op.traits.needs and high < 0:
                continue
            operands = draw(op, form, rng, low, high)
            held = [(float(x.min()), float(x.max())) for x in operands]
            made = result(op, operands, attrs)
            given = Bounded(held, attrs, form.shapes, 1, False, made.dtype.kind == "f")
            least, most = bounds(given)
            assert least - 1e-9 <= made.min() <= made.max() <= most + 1e-9


@pytest.mark.parametrize("name", [n for n in REGISTRY if facets(n).nothing is not None])
def test_the_number_that_changes_nothing(name: str) -> None:
    op, x = REGISTRY[name], np.random.default_rng(0).uniform(0.1, 2, size=(3, 2))
    assert np.array_equal(result(op, [x], {facets(op.name).literal: facets(op.name).nothing}), x)


class OnFloats:
    """The words in which functions are defined, on numbers."""

    one = np.float64(1)
    add, sub, mul, neg = np.add, np.subtract, np.multiply, np.negative
    reciprocal, exp, log, absolute = np.reciprocal, np.exp, np.log, np.abs

    def scale(self, a: Array, value: Fraction) -> Array:
        return a * float(value)


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.by is not None])
def test_a_function_is_as_it_is_defined(name: str) -> None:
    function = FUNCTIONS[name]
    least = LOWEST.get(REGISTRY[name].traits.needs, -5.0)
    x = np.random.default_rng(0).uniform(least, 5, size=100)
    assert function.by is not None
    assert function.by(OnFloats(), x) == pytest.approx(function.floats(x), rel=1e-9)
    assert function.strict == REGISTRY[name].traits.strict


# names

ROOT = Path(__file__).parents[2] / "verifier"
APART = ("kernel/composites", "kernel/movements", "kernel/ops", "ops/", "checker")
"""The declarations; and the checker, whose tables are its own on purpose."""
WORDS = frozenset(
    {*FOLDS, "reshape", "slice", "concat", "scan", "only", "full", "expand", "permute"}
)
"""Folds are called as sums are; and the ops that programs and terms are cut, joined and laid out
by, which any room may write."""
COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
"""Relations, which domains know by the names of the ops."""
CALLS = frozenset(REGISTRY[n].traits.meets for n in REGISTRY) | {"send", "recv", "wait"}
"""Calls in which ranks meet: the events of the room `order`."""
ALLOWED: dict[str, str] = {
    # ops that have to be told apart by what they are
    "analysis/definedness.py": "cast",
    "analysis/replication.py": "merge mul",
    "analysis/sentinels.py": "cast",
    # identities of real functions
    "domains/axioms.py": "reciprocal rsqrt sqrt",
    "domains/polynomials.py": "abs exp log reciprocal sqrt",
    "domains/symbolic.py": "reciprocal",
    # the activations that an attribute may name
    "kernel/program/types.py": "gelu gelu_tanh relu sigmoid silu tanh",
    # messages, which may be waited for
    "kernel/program/program.py": "recv",
    # messages along a ring
    "order/from_program.py": "ring_shift",
    # laws about these very ops, in index notation
    "provers/canonical/entries.py": (
        "amax cumsum index_add le lt pad put_along sqrt take take_along where"
    ),
    "provers/canonical/functions.py": (
        "abs eq exp le log logical_and logical_not logical_or lt ne reciprocal where"
    ),
    "provers/canonical/signs.py": "exp log reciprocal",
    "provers/canonical/sums.py": "exp",
    "provers/canonical/tidy.py": "exp",
    "provers/cross_entropy.py": "div exp log mul ne put_along sub take_along where",
    "provers/relate/moving.py": "ring_shift",
    "provers/relate/scans.py": "add",
    "provers/relate/strategies.py": "all_gather all_to_all broadcast ring_shift scatter send",
    "provers/relate/walk.py": "merge",
    "provers/scalars/cases.py": "dropout_mask",
    "smt/equalities.py": "bmm cast mm where",
    # what single entries of these ops are, read a second time on purpose
    "smt/pointwise.py": (
        "abs add add_scalar amax bmm cast div dropout_mask eq exp flip ge gt index_add iota le "
        "logical_and logical_not logical_or lt maximum minimum mm mul mul_scalar ne neg pad pow "
        "reciprocal relu rsqrt sigmoid silu sqrt sub take take_along where"
    ),
    "smt/values.py": (
        "amax bmm cast cumsum dropout_mask flip index_add iota mm pad put_along take take_along "
        "topk_index topk_mask"
    ),
    # how these very ops follow extents, literals and coordinates
    "refute/scale_down/collect.py": "index_add iota topk_index",
    "refute/scale_down/fold.py": "merge",
    "refute/scale_down/literals.py": "add_scalar all_reduce cast pow",
    "refute/scale_down/mesh_constants.py": "add_scalar mul_scalar",
    "refute/roots.py": "add add_scalar cast div mul mul_scalar",
    "refute/scale_down/rules.py": (
        "all_gather all_to_all gather index_add iota merge pad put_along reduce_scatter "
        "scatter shard_pad shard_slice take take_along topk_index topk_mask"
    ),
    "refute/scale_down/saturation.py": "all_reduce amax cast mul_scalar sub where",
    # normal forms of these very ops
    "terms/building.py": (
        "add add_scalar bmm cast div dropout_mask exp ge gt index_add iota le log lt mm mul "
        "mul_scalar neg pad pow put_along reciprocal round_to sub take_along where"
    ),
    "terms/defined.py": "eq le lt maximum ne pow reciprocal where",
    "terms/parts.py": "pad",
    "terms/rows.py": "dropout_mask round_to",
    "terms/table.py": "reciprocal",
}
"""Where else in the verifier ops are named: rules about these very ops. A list of ops that share
something is a class (`verifier/ops/classes.py`); `test_names.py` asks it of other packages."""


def named(path: Path) -> set[str]:
    """Names of ops among the strings of a module."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update([node.value] if node.value in REGISTRY else [])
    return found


def test_no_op_is_named_where_its_declaration_would_say() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).as_posix()
        shared = WORDS | (COMPARED if room.startswith("domains") else frozenset())
        names = set(named(path)) - (shared | CALLS if room.startswith("order") else shared)
        if names and not room.startswith(APART):
            found[room] = names
    assert found == {room: set(names.split()) for room, names in ALLOWED.items()}
