"""What loops, axes, indices and updates mean: every script here is also run by the interpreter."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings, strategies as st

from shardproof.compat.tir_lifter import LiftResult, compare, lift_text


def lifted(body: str, params: str, **options: object) -> LiftResult:
    text = f"@T.prim_func\ndef f({params}):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    made = lift_text(text, "f.py", **options)  # pyright: ignore[reportArgumentType]
    compare(made)
    return made


def ops(made: LiftResult) -> list[str]:
    return [n.op for n in made.program.nodes]


def buffers(**shapes: str) -> str:
    return ", ".join(f"{k}: T.Buffer({v})" for k, v in shapes.items())


SCRIPTS = {
    "transpose": (
        buffers(A="(4, 6), 'float32'", C="(6, 4), 'float32'"),
        "for i, j in T.grid(6, 4):\n    C[i, j] = A[j, i]",
        ["permute"],
    ),
    "slice with an offset, a step and backwards": (
        buffers(A="(9, 8), 'float32'", C="(4, 8), 'float32'"),
        "for i, j in T.grid(4, 8):\n    C[i, j] = A[2 * i + 1, 7 - j]",
        ["slice", "flip"],
    ),
    "a reshape by quotient and remainder": (
        buffers(A="(4, 6), 'float32'", C="(24,), 'float32'"),
        "for i in range(24):\n    C[i] = A[i // 6, i % 6]",
        ["reshape"],
    ),
    "a reshape across both dims": (
        buffers(A="(4, 6), 'float32'", C="(8, 3), 'float32'"),
        "for i, j in T.grid(8, 3):\n    C[i, j] = A[(i * 3 + j) // 6, (i * 3 + j) % 6]",
        ["reshape"],
    ),
    "a window of three": (
        buffers(A="(10,), 'float32'", W="(3,), 'float32'", C="(8,), 'float32'"),
        """
        for i in range(8):
            C[i] = 0.0
        for i, k in T.grid(8, 3):
            C[i] = C[i] + A[i + k] * W[k]
        """,
        ["concat"],
    ),
    "a diagonal": (
        buffers(A="(4, 4), 'float32'", C="(4,), 'float32'"),
        "for i in range(4):\n    C[i] = A[i, i]",
        ["concat"],
    ),
    "padding by a condition": (
        buffers(A="(6,), 'float32'", C="(10,), 'float32'"),
        "for i in range(10):\n    C[i] = T.if_then_else(2 <= i and i < 8, A[i - 2], T.float32(0))",
        ["pad", "where"],
    ),
    "a causal mask": (
        buffers(A="(5, 5), 'float32'", C="(5, 5), 'float32'"),
        "for i, j in T.grid(5, 5):\n    C[i, j] = T.Select(j <= i, A[i, j], T.float32(-1e9))",
        ["iota", "where"],
    ),
    "rows by an index": (
        "W: T.Buffer((7, 3), 'float32'), ids: T.Buffer((5,), 'int32'), "
        "C: T.Buffer((5, 3), 'float32')",
        "for i, j in T.grid(5, 3):\n    C[i, j] = W[ids[i], j]",
        ["take"],
    ),
    "halves written one after the other": (
        buffers(A="(8, 2), 'float32'", C="(8, 2), 'float32'"),
        """
        for i, j in T.grid(4, 2):
            C[i, j] = T.exp(A[i, j])
        for i, j in T.grid(4, 2):
            C[i + 4, j] = A[i + 4, j] * 2.0
        """,
        ["concat"],
    ),
    "an overwrite of the middle": (
        buffers(A="(8,), 'float32'", C="(8,), 'float32'"),
        """
        for i in range(8):
            C[i] = A[i]
        for i in range(3):
            C[i + 2] = C[i + 2] * A[i]
        """,
        ["concat"],
    ),
    "a batched product with a transposed operand": (
        buffers(A="(2, 3, 4), 'float32'", B="(2, 5, 4), 'float32'", C="(2, 3, 5), 'float32'"),
        """
        for b, i, j, k in T.grid(2, 3, 5, 4):
            with T.block("C"):
                vb, vi, vj, vk = T.axis.remap("SSSR", [b, i, j, k])
                with T.init():
                    C[vb, vi, vj] = T.float32(0)
                C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, vk] * B[vb, vj, vk]
        """,
        ["bmm"],
    ),
    "a scaled product of three, summed over a fourth": (
        buffers(
            A="(3, 4), 'float32'",
            B="(4, 5), 'float32'",
            D="(4, 2), 'float32'",
            C="(3, 5), 'float32'",
        ),
        """
        for i, j in T.grid(3, 5):
            C[i, j] = T.float32(0)
        for i, j, k, l in T.grid(3, 5, 4, 2):
            C[i, j] += A[i, k] * B[k, j] * D[k, l] * T.float32(0.5)
        """,
        ["mm", "sum"],
    ),
    "minus a sum, over a start that is not zero": (
        buffers(A="(3, 4), 'float32'", C="(3,), 'float32'"),
        """
        for i in range(3):
            C[i] = T.float32(2)
        for i, k in T.grid(3, 4):
            C[i] = C[i] - A[i, k]
        """,
        ["sum", "neg"],
    ),
    "a minimum and a maximum over a start that matters": (
        buffers(A="(3, 4), 'float32'", C="(3,), 'float32'", D="(3,), 'float32'"),
        """
        for i in range(3):
            C[i] = T.float32(0.5)
            D[i] = T.max_value("float32")
        for i, k in T.grid(3, 4):
            C[i] = T.max(C[i], A[i, k])
        for i, k in T.grid(3, 4):
            D[i] = T.min(D[i], A[i, k])
        """,
        ["amax", "maximum"],
    ),
    "a sum over an axis that nothing depends on": (
        buffers(A="(3,), 'float32'", C="(3,), 'float32'"),
        """
        for i in range(3):
            C[i] = T.float32(0)
        for i, k in T.grid(3, 4):
            C[i] = C[i] + A[i]
        """,
        ["mul_scalar"],
    ),
    "a buffer that each iteration has for itself": (
        buffers(A="(4, 6), 'float32'", C="(4, 6), 'float32'"),
        """
        row = T.alloc_buffer((6,), "float32")
        for i in range(4):
            for j in range(6):
                row[j] = T.exp(A[i, j])
            for j in range(6):
                C[i, j] = row[5 - j] + row[j]
        """,
        ["exp", "add"],
    ),
    "reduce loops outside": (
        buffers(A="(3, 4), 'float32'", B="(4, 5), 'float32'", C="(3, 5), 'float32'"),
        """
        for k, j, i in T.grid(4, 5, 3):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
        ["mm"],
    ),
    "a fused loop": (
        buffers(A="(4, 6), 'float32'", C="(4, 6), 'float32'"),
        """
        for f in T.parallel(24):
            with T.block("C"):
                vi = T.axis.spatial(4, f // 6)
                vj = T.axis.spatial(6, f % 6)
                T.reads(A[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = T.tanh(A[vi, vj])
        """,
        ["tanh"],
    ),
    "integers": (
        "A: T.Buffer((4,), 'int32'), C: T.Buffer((4,), 'int32')",
        "for i in range(4):\n    C[i] = A[i] * 3 + i - T.max(A[i], 1)",
        ["iota"],
    ),
    "a scalar parameter and a cast": (
        "alpha: T.float32, A: T.Buffer((4,), 'float16'), C: T.Buffer((4,), 'float32')",
        "for i in range(4):\n    C[i] = alpha * T.cast(A[i], 'float32') / 3.0",
        ["cast", "mul"],
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_lifted_and_interpreted_agree(name: str) -> None:
    params, body, expected = SCRIPTS[name]
    made = lifted(body, params)
    assert set(expected) <= set(ops(made)), ops(made)


def test_what_the_caller_left_is_read_only_where_it_is_said() -> None:
    made = lifted(
        "for i, k in T.grid(3, 4):\n    C[i] = C[i] + A[i, k]",
        buffers(A="(3, 4), 'float32'", C="(3,), 'float32'"),
        inout=["C"],
    )
    assert [i.name for i in made.program.inputs] == ["A", "C"]
    assert [o.path for o in made.program.outputs] == ["C"]


UNARY = ("T.exp(T.sin({0}))", "T.tanh({0})", "T.sigmoid({0})", "-{0}", "T.abs({0})")
BINARY = (
    "({0} + {1})",
    "({0} - {1})",
    "({0} * {1})",
    "T.max({0}, {1})",
    "T.min({0}, {1})",
    "T.if_then_else({0} < {1}, {1}, {0})",
    "T.if_then_else(i <= j, {0}, {1})",
    "({0} / ({1} * {1} + 1.0))",
)
LEAVES = (
    "A[i, j]",
    "B[j, i]",
    "D[j]",
    "D[i + 1]",
    "E[i]",
    "A[i, 3 - j]",
    "E[2]",
    "s",
    "1.5",
    "T.float32(-2)",
    "T.cast(i, 'float32')",
    "E[(i * 4 + j) // 8]",
    "T.cast(i * 4 + j, 'float32')",
)


def trees() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(LEAVES),
        lambda inner: st.one_of(
            st.builds(str.format, st.sampled_from(UNARY), inner),
            st.builds(str.format, st.sampled_from(BINARY), inner, inner),
        ),
        max_leaves=8,
    )


PARAMS = (
    buffers(A="(3, 4), 'float32'", B="(4, 3), 'float32'", D="(4,), 'float32'", E="(3,), 'float32'")
    + ", s: T.float32, "
)


@settings(max_examples=60, deadline=None)
@given(trees())
def test_any_tree_of_functions_is_lifted_as_it_is_run(tree: str) -> None:
    body = f"for i, j in T.grid(3, 4):\n    C[i, j] = {tree}"
    lifted(body, PARAMS + buffers(C="(3, 4), 'float32'"))


@settings(max_examples=40, deadline=None)
@given(
    trees(),
    st.sampled_from(["ij", "ji"]),
    st.sampled_from(["i", "j", ""]),
    st.sampled_from(["C[{0}] + {1}", "C[{0}] - {1}", "T.max({1}, C[{0}])", "T.min(C[{0}], {1})"]),
)
def test_any_reduction_of_a_tree_is_lifted_as_it_is_run(
    tree: str, order: str, kept: str, update: str
) -> None:
    extents = {"i": 3, "j": 4}
    at = kept or "0"
    loops = f"for {order[0]}, {order[1]} in T.grid({extents[order[0]]}, {extents[order[1]]}):"
    size = extents.get(kept, 1)
    body = f"""
for q in range({size}):
    C[q] = T.float32(0.25)
{loops}
    C[{at}] = {update.format(at, tree)}
"""
    lifted(body, PARAMS + buffers(C=f"({size},), 'float32'"))


@settings(max_examples=40, deadline=None)
@given(
    st.permutations(["i0", "i1", "j", "k0", "k1"]),
    st.sampled_from([(6, 2, 3), (5, 2, 3), (6, 3, 2), (7, 4, 2)]),
    st.sampled_from(["serial", "unroll"]),
)
def test_any_order_of_tiles_is_the_product_or_is_refused(
    order: list[str], rows: tuple[int, int, int], kind: str
) -> None:
    """The init runs where both reduce loops are 0; whatever the order, sums start there."""
    m, outer, inner = rows
    extent = {"i0": outer, "i1": inner, "j": 2, "k0": 2, "k1": 2}
    text = ""
    for depth, name in enumerate(order):
        text += "    " * depth + f"for {name} in T.{kind}({extent[name]}):\n"
    block = f"""
with T.block("C"):
    vi = T.axis.spatial({m}, i0 * {inner} + i1)
    vj = T.axis.spatial(2, j)
    vk = T.axis.reduce(4, k0 * 2 + k1)
    T.where(i0 * {inner} + i1 < {m})
    with T.init():
        C[vi, vj] = T.float32(0)
    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    made = lifted(
        text + textwrap.indent(block, "    " * 5),
        buffers(A=f"({m}, 4), 'float32'", B="(4, 2), 'float32'", C=f"({m}, 2), 'float32'"),
    )
    assert ops(made) == ["mm"]
