"""Whatever the loops and stores: a lifted program computes what the script does, or is refused.

Programs share loops, overwrite buffers, carry values from one iteration to the next and leave their
buffers; about two thirds must be refused, and none may be lifted wrong.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from shardproof.compat.tir_lifter import TirError, compare, lift_text

HEAD = """@T.prim_func
def f(A: T.Buffer((6,), "float32"), C: T.Buffer((6,), "float32")):
    X = T.alloc_buffer((6,), "float32")
    Y = T.alloc_buffer((6,), "float32")
    for z in range(6):
        X[z] = A[z] * 0.5
        Y[z] = A[z] - 1.0
    for z in range(6):
        C[z] = A[5 - z]
"""


def _index(rng: Random, inner: bool) -> str:
    deep = ["j"] * 4 + ["i * 2 + j"] * 2 if inner else []
    return rng.choice(["i"] * 6 + deep + ["5 - i", "i // 2", "i % 3", "2"])


def _store(rng: Random, inner: bool) -> str:
    at = ["i"] * 5 + (["j", "i * 2 + j", "i * 2 + j"] if inner else ["5 - i"])
    target = f"{rng.choice('XYC')}[{rng.choice(at)}]"
    parts = [f"{rng.choice('AAXYC')}[{_index(rng, inner)}]" for _ in range(rng.choice([1, 1, 2]))]
    value = " + ".join(parts)
    if rng.random() < 0.3:
        value = rng.choice(["{0} + {1}", "T.max({0}, {1})", "{0} - ({1})"]).format(target, value)
    return f"{target} = {value}"


def _nest(rng: Random) -> list[str]:
    """A loop over i, or over i with stores around a loop over j."""
    kind = rng.choice(["serial"] * 4 + ["parallel"])
    if rng.random() < 0.5:
        stores = [f"    {_store(rng, False)}" for _ in range(rng.choice([1, 2, 2, 3]))]
        return [f"for i in T.{kind}({rng.choice([6, 6, 6, 3])}):", *stores]
    before, after = ([f"    {_store(rng, False)}"] if rng.random() < 0.4 else [] for _ in range(2))
    inside = [f"        {_store(rng, True)}" for _ in range(rng.choice([1, 1, 2]))]
    head = f"for i in T.{kind}({rng.choice([3, 3, 6])}):"
    return [head, *before, "    for j in T.serial(2):", *inside, *after]


def program(rng: Random) -> str:
    lines = [line for _ in range(rng.choice([1, 1, 2])) for line in _nest(rng)]
    return HEAD + "\n".join(f"    {line}" for line in lines)


@pytest.mark.parametrize("seed", range(4))
def test_a_program_is_lifted_right_or_refused(seed: int) -> None:
    rng, seen = Random(seed), Counter[str]()
    for _ in range(40):
        text = program(rng)
        try:
            made = lift_text(text, "f.py")
        except TirError as error:
            seen["refused" if error.where.startswith("f.py:") else "without a place"] += 1
            continue
        compare(made)
        seen["lifted"] += 1
    assert seen["lifted"] >= 5
    assert seen["refused"] >= 5
    assert not seen["without a place"]


@pytest.mark.parametrize(
    "line",
    ["C[i] = C[i - 1] + A[i]", "C[i // 2] = A[i]", "C[0] = A[i]",
     "X[i] = C[5 - i]\n        C[i] = X[i]"],
)  # fmt: skip
def test_a_recurrence_is_refused(line: str) -> None:
    text = f"{HEAD}    for i in T.serial(6):\n        {line}\n"
    message = r"f.py:\d+:\d+: (C carries|an element of C|index 0 of C)"
    with pytest.raises(TirError, match=message):
        lift_text(text, "f.py")
