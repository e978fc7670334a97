"""Asynchronous communication: what may be read when, and which buffers are still in use."""

from verifier import (
    GELU,
    AllReduce,
    AllReduceAsync,
    MatMul,
    OverlapRegion,
    Program,
    RaceType,
    Wait,
)
from verifier.temporal import verify_temporal

product = MatMul("x", "w", "p")
start = AllReduceAsync("p", "y", handle="h1")
CASES = {
    "waits, then reads": ([product, start, Wait("h1", "y", "z"), GELU("z", "a")], None),
    "overlaps with other work": (
        [product, OverlapRegion([MatMul("u", "v", "q")], [AllReduce("p", "y")]), GELU("y", "a")],
        None,
    ),
    "reads before the wait": (
        [product, start, GELU("y", "a"), Wait("h1", "y", "z")],
        RaceType.MISSING_WAIT,
    ),
    "never waits": ([product, start], RaceType.ORPHANED_HANDLE),
    "writes what is being reduced": (
        [product, start, MatMul("u", "v", "p"), Wait("h1", "y", "z")],
        RaceType.DATA_RACE,
    ),
    "two reductions into one buffer": (
        [
            product,
            start,
            AllReduceAsync("q", "y", "h2"),
            Wait("h1", "y", "z"),
            Wait("h2", "y", "a"),
        ],
        RaceType.BUFFER_ALIASING,
    ),
}

for name, (ops, expected) in CASES.items():
    result = verify_temporal(Program(name, ops))
    print(result.summary())
    assert result.is_safe == (expected is None)
    assert expected is None or result.count(expected)
