"""A slice of the fault injection of benchmarks/faults.py; mutants of the guard are each killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks import fault_moves, faults
from shardproof.synthesis.guard.fingerprint import (
    ExoCluster,
    FingerprintError,
    Fp,
    collectives,
    movement,
    outcome,
    verify_exo_inference as infer,
)
from shardproof.synthesis.guard.fingerprint.exo import ExoVerifier
from shardproof.synthesis.guard.fingerprint.outcome import Verdict
from shardproof.synthesis.guard.fingerprint.partition import TensorPartition
from shardproof.synthesis.guard.fingerprint.region import Runs

SLICES: dict[str, Callable[[np.random.Generator], Any]] = {
    "bits": lambda rng: [faults.every_bit("f4", 41)],
    "flips": lambda rng: faults.many_flips(30, rng),
    "all-gather": lambda rng: faults.moved(1, rng, 5, ("f4", "u1"), (2, 3, 8)),
    "handoffs": lambda rng: faults.handoffs(20, rng),
    "race": lambda rng: [faults.races(20, rng)],
    "sums": lambda rng: faults.sums(2, rng, 5),
    "exact": lambda rng: faults.exact_steps(5, rng),
    "sum flips": lambda rng: faults.sum_flips(10, rng),
    "clean": lambda rng: faults.clean(200, rng),
}


@pytest.mark.parametrize("name", SLICES)
def test_faults_are_found_and_clean_runs_are_not(name: str) -> None:
    assert [str(row) for row in SLICES[name](np.random.default_rng(5)) if row.bad] == []


def bad_moves() -> bool:
    rng = np.random.default_rng(5)
    return any(row.bad for row in faults.moved(1, rng, 5, ("f4",), (2, 3)))


def bad_clean() -> bool:
    return any(row.bad for row in faults.clean(40, np.random.default_rng(5)))


def bad_handoffs() -> bool:
    return any(row.bad for row in faults.handoffs(5, np.random.default_rng(5)))


def one_rank_overruled() -> bool:
    good, bad = Verdict("passed", "op", "H"), Verdict("failed", "op", "H", rank=1)
    return bool(outcome.combined([good, bad]))


def silence_passes() -> bool:
    cluster = ExoCluster([("a", 8.0, "::1")], "small", n_layers=2, hidden_dim=4)
    return bool(infer(cluster, "Hello", n_tokens=2))


BLOCKS, VERIFY = Runs.blocks, ExoVerifier.verify_cluster


def constant(word: Any, spare: Any) -> None:
    word[:] = 1


def no_salt(self: Runs, factor: int = 1, offset: int = 0) -> Any:
    for place, g in BLOCKS(self, factor, offset):
        g[:] = 0
        yield place, g


def xor(self: Fp, other: Fp) -> Fp:
    return Fp(self.value ^ other.value, self.count + other.count, self.key, self.width)


def unclamped(self: TensorPartition, shard_id: int) -> tuple[int, int]:
    size = -(-self.global_size // self.n_shards)
    return shard_id * size, (shard_id + 1) * size


def same_key(*route: Any, **named: Any) -> int:
    return 1


def self_filled(self: ExoVerifier, reported: Any) -> Verdict:
    return VERIFY(self, self.expected_fps)


MUTANTS: dict[str, tuple[Callable[[], bool], list[tuple[Any, str, Any]]]] = {
    "the mixer is a constant": (bad_moves, [(movement, "fmix_into", constant)]),
    "no salt of places": (bad_moves, [(Runs, "blocks", no_salt)]),
    "XOR for the sum": (bad_clean, [(Fp, "__add__", xor)]),
    "offsets run over": (bad_clean, [(TensorPartition, "bounds", unclamped)]),
    "one key for all": (
        bad_handoffs,
        [(collectives, "handoff_key", same_key), (fault_moves, "handoff_key", same_key)],
    ),
    "the first rank's verdict": (one_rank_overruled, [(outcome, "combined", lambda v: v[0])]),
    "expected taken for reported": (silence_passes, [(ExoVerifier, "verify_cluster", self_filled)]),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_lesser_guard_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What shows the mutant is silent on the guard as it is, and is not on the mutant."""
    shows, patches = MUTANTS[name]
    assert not shows()
    for patch in patches:
        monkeypatch.setattr(*patch)
    try:
        found = shows()
    except FingerprintError:
        found = True
    assert found


def test_the_core_loads_without_torch() -> None:
    code = (
        "import sys, shardproof.synthesis.guard.fingerprint\n"
        "sys.exit(len({'torch', 'z3'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
