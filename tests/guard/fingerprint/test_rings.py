"""Rings of devices, kernel lifetimes, whole runs, and the seed-compatible mode."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.fault_kinds import Fault, FaultInjector
from benchmarks.fingerprint_runs.inference import verify_distributed_inference
from benchmarks.fingerprint_runs.ring import SimulatedCluster, verify_with_fault_injection
from shardproof.synthesis.guard.fingerprint import (
    ExoCluster,
    ExoVerifier,
    FingerprintError,
    KernelColorContext,
    create_exo_partitions,
    eventual_color,
    eventual_fingerprint,
    exo_color,
    exo_report,
    exo_ring_route,
    expected_fingerprint,
    fingerprint,
    handoff_key,
    kernel_color,
    kernel_finalize,
    verify_exo_inference,
    verify_exo_ring,
    verify_items,
)
from tests.guard.fingerprint import published

MACBOOKS = [("MacBook Pro", 18.0, "192.168.1.10"), ("MacBook Air", 8.0, "192.168.1.11")]


def test_layers_by_memory() -> None:
    pro, air = create_exo_partitions([(n, m) for n, m, _ in MACBOOKS], 32)
    assert (pro.layer_range, air.layer_range) == (range(1, 23), range(23, 33))
    assert str(pro) == "MacBook Pro (18 GB): layers 1-22 (69%)"


@given(
    st.lists(st.floats(0.1, 500), min_size=1, max_size=10),
    st.integers(1, 80),
    st.sampled_from(["rounded", "cumulative"]),
)
def test_always_a_partition(memory: list[float], layers: int, rule: Any) -> None:
    parts = create_exo_partitions([(str(m), m) for m in memory], layers, rule=rule)
    assert [i for p in parts for i in p.layer_range] == list(range(1, layers + 1))


def test_equal_devices_with_few_layers() -> None:
    parts = create_exo_partitions([(str(i), 8.0) for i in range(5)], 3)
    assert [i for p in parts for i in p.layer_range] == [1, 2, 3]


SMALL: dict[str, Any] = {"n_layers": 6, "hidden_dim": 8}
SMALL_RING = ExoCluster(MACBOOKS, "small", **SMALL)


def reports(cluster: ExoCluster, prompt: str, n: int) -> dict[int, Any]:
    return {
        p.device_id: exo_report(
            cluster, prompt, n, {i: exo_color(cluster, i, prompt, n) for i in p.layer_range}
        ).to_json()
        for p in cluster.partitions
    }


def test_reported_values_are_verified_and_never_made_up() -> None:
    cluster = ExoCluster(MACBOOKS, "small", **SMALL)
    good = reports(cluster, "Hello world", 32)
    assert verify_exo_inference(cluster, "Hello world", n_tokens=32, reported_fps=good)
    silent = verify_exo_inference(cluster, "Hello world", n_tokens=32)
    assert (silent.status, bool(silent)) == ("skipped", False)
    other = verify_exo_inference(cluster, "Hello", n_tokens=32, reported_fps=good)
    assert "another run" in other.probable_fault
    half = verify_exo_inference(cluster, "Hello world", n_tokens=32, reported_fps={0: good[0]})
    assert half.culprit_ranks == (1,)


def test_reports_as_json_and_all_culprits() -> None:
    cluster = ExoCluster(MACBOOKS, "small", **SMALL)
    good = json.loads(json.dumps(reports(cluster, "Hi", 4)))
    assert set(good) == {"0", "1"}
    assert verify_exo_inference(cluster, "Hi", n_tokens=4, reported_fps=good)
    swapped = {"0": good["1"], "1": good["0"]}
    verdict = verify_exo_inference(cluster, "Hi", n_tokens=4, reported_fps=swapped)
    assert verdict.culprit_ranks == (0, 1)


def test_layers_that_are_no_whole_words() -> None:
    cluster = ExoCluster(MACBOOKS, "small", n_layers=5, hidden_dim=3)
    good = reports(cluster, "Hi", 3)
    assert verify_exo_inference(cluster, "Hi", n_tokens=3, reported_fps=good)


def test_a_device_that_ran_other_layers() -> None:
    cluster = ExoCluster(MACBOOKS, "small", **SMALL)
    verifier = ExoVerifier(cluster, n_tokens=4)
    states = {i: exo_color(cluster, i, "", 4) for i in cluster.partitions[1].layer_range}
    assert verifier.verify_device(1, exo_report(cluster, "", 4, states))
    states[5], states[6] = states[6], states[5]
    assert verifier.verify_device(1, exo_report(cluster, "", 4, states)).culprit_ranks == (1,)
    zeros = {i: np.zeros((4, 8), "f4") for i in states}
    assert verifier.verify_device(1, exo_report(cluster, "", 4, zeros)).alarm
    assert (
        "layers missing"
        in verifier.verify_device(1, exo_report(cluster, "", 4, {6: states[5]})).probable_fault
    )


def test_a_ring() -> None:
    parts = create_exo_partitions([("a", 18.0), ("b", 8.0)], 32)
    assert [exo_ring_route(parts, d) for d in (0, 1)] == [(1, 1), (0, 23)]
    x = np.ones((2, 8), "f4")
    sent = fingerprint(x, None, handoff_key(1069, 0, 1, 23))
    assert verify_exo_ring(x, parts, 1, sent_fp=sent)
    assert verify_exo_ring(np.zeros_like(x), parts, 1, sent_fp=sent).culprit_ranks == (0,)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: create_exo_partitions([], 3), "at least 1 each"),
        (lambda: create_exo_partitions([("a", 0.0)], 3), "a has 0.0 GB"),
        (lambda: create_exo_partitions([("a", "8")], 3), "a has '8' GB"),
        (lambda: create_exo_partitions([("a", float("nan"))], 3), "a has nan GB"),
        (lambda: create_exo_partitions([("a", 1e308), ("b", 1e308)], 3), "a has 1e+308 GB"),
        (lambda: create_exo_partitions([("a", 8.0)], 2.5), "n_layers is 2.5"),
        (lambda: create_exo_partitions([5], 3), "expected (name, GB), got 5"),
        (lambda: create_exo_partitions(None, 3), "expected a list of (name, GB), got None"),
        (lambda: ExoCluster([("a", 8.0)], "olmo-7b"), "expected (name, GB, address), got ('a'"),
        (lambda: ExoCluster([("a", 8.0, "::1")], "x", n_layers=2, hidden_dim=-1), "hidden_dim"),
        (lambda: ExoVerifier(SMALL_RING, 0), "n_tokens is 0, expected at least 1"),
        (lambda: ExoVerifier(SMALL_RING, "3"), "n_tokens is '3'"),
        (lambda: ExoVerifier(SMALL_RING, 2, None), "the prompt: expected text, got None"),
        (lambda: ExoVerifier(SMALL_RING, 2).verify_cluster([1]), "expected a mapping"),
        (
            lambda: ExoVerifier(SMALL_RING, 2).verify_cluster({0: "x", 1: "y"}),
            "device 0 (MacBook Pro): a reported fingerprint",
        ),
        (lambda: KernelColorContext(1.5, 1), "n_items is 1.5"),
        (lambda: kernel_color(KernelColorContext(3, 1), "a"), "work items are 0..2"),
        (lambda: eventual_color(1, -1, 3), "the work item is -1, expected at least 0"),
        (lambda: eventual_fingerprint(1, 3, -1), "iterations is -1"),
        (lambda: SimulatedCluster([("a", 8.0)], 3, n_tokens=0), "n_tokens is 0"),
        (lambda: verify_with_fault_injection(None), "expected a SimulatedCluster"),
        (lambda: FaultInjector(0).draw("drop", 0), "n_ranks is 0"),
        (lambda: FaultInjector(0).inject(Fault("drop", 5, 0), [np.ones(2)]), "there are 1 pieces"),
        (lambda: FaultInjector(0).inject(Fault("drop", 0, 0), [[1]]), "expected a numpy array"),
        (lambda: create_exo_partitions([("a", 8.0, "::1")], 3), "expected (name, GB)"),
        (lambda: ExoCluster(MACBOOKS, "gpt-5"), "is not known"),
        (
            lambda: ExoVerifier(ExoCluster(MACBOOKS, "s", **SMALL), 2).verify_device(7, {}),
            "device 7",
        ),
        (lambda: ExoVerifier(SMALL_RING, 2).verify_device(0, "x"), "a reported fingerprint"),
        (lambda: kernel_color(KernelColorContext(3, 1), 99), "work items are 0..2, got 99"),
        (lambda: expected_fingerprint(1, 0, 4), "0 tokens of 4 dims"),
        (lambda: SimulatedCluster([("a", 8.0)], 3).inject("flood"), "no fault 'flood'"),
        (lambda: SimulatedCluster([("a", 8.0)], 3).verify(), "nothing was checked"),
        (lambda: FaultInjector(0).inject(Fault("x", 0, 0), []), "no fault 'x'"),
    ],
)
def test_bad_input(call: Any, said: str) -> None:
    with pytest.raises(FingerprintError) as error:
        call()
    assert said in str(error.value)


def test_kernel_lifetimes() -> None:
    context = KernelColorContext(20, seed=3)
    for _ in range(7):
        kernel_color(context)
    assert kernel_finalize(context) == eventual_fingerprint(3, 20, 7)
    assert int(context.colors[4]) == eventual_color(3, 4, 7)
    assert verify_items(context, 7)
    kernel_color(context, 5)
    assert kernel_finalize(context) != eventual_fingerprint(3, 20, 7)
    assert "work item 5 ran 8 times, not 7" in verify_items(context, 7).probable_fault
    kernel_color(context, np.array([6, 6]))
    assert int(context.colors[6]) == eventual_color(3, 6, 9)
    kernel_color(context, [7, 7])
    kernel_color(context, np.arange(20) == 8)
    assert int(context.colors[7]) == eventual_color(3, 7, 9)
    assert int(context.colors[8]) == eventual_color(3, 8, 8)


TINY: dict[str, Any] = {"n_tokens": 8, "hidden_dim": 16, "vocab_size": 32, "n_layers": 4}


def test_a_clean_run_passes() -> None:
    run = verify_distributed_inference(**TINY)
    assert run
    assert len(run.verdicts) == 2 + 4 * 4 + 3 + 2


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("embeddings", "duplicate"),
        ("layer 2", "missing_rank"),
        ("layer 3", "bit_flip"),
        ("handoff 1", "permute_rows"),
        ("logits", "swap"),
    ],
)
def test_a_run_with_one_fault_does_not(op: str, kind: str) -> None:
    rank = 0 if op.startswith("handoff") else 1
    run = verify_distributed_inference(**TINY, faults={op: Fault(kind, rank, 11)})
    assert not run
    assert run.alarms


def test_a_fault_of_no_op_is_an_error() -> None:
    with pytest.raises(FingerprintError, match="no op is named 'layer 9'"):
        verify_distributed_inference(**TINY, faults={"layer 9": Fault("drop", 0, 0)})


def test_a_nemesis_is_found_and_located_each_time() -> None:
    cluster = SimulatedCluster([("a", 18.0), ("b", 8.0), ("c", 8.0)], 32, n_tokens=4, hidden_dim=8)
    found = verify_with_fault_injection(cluster, 120)
    assert found.detected == found.injected == found.located
    assert sum(found.injected.values()) + sum(found.unchanged.values()) == 60
    assert (found.clean_runs, found.false_alarms) == (60, 0)


HEX = {
    "expected": (
        lambda *a: published.expected_fingerprint(*a),
        {
            (1069, 1, 1, 1): 0x3F68E8E9,
            (1069, 3, 4, 1): 0x015E5E5A,
            (1069, 1, 8, 1): 0x00A4242C,
            (1069, 5, 8, 5): 0x019D1D13,
            (1069, 127, 64, 5): 0x0115151B,
            (1069, 129, 256, 16): 0x02575769,
            (42, 1, 8, 1): 0x00070709,
            (42, 5, 8, 5): 0x01AFAFA8,
            (42, 7, 8, 5): 0x01AFAFA8,
            (42, 129, 256, 16): 0x019E1E1E,
            (1069, 1, 4096, 1): 0x38F6761E,
            (1069, 1, 4096, 5): 0x027C7C24,
            (1069, 128, 4096, 5): 0,
        },
    ),
    "colors": (
        lambda n, s: published.xor_fingerprint(published.kernel_colors(n, s)),
        {
            (1, 42): 0x3DFDFDFE,
            (10, 42): 0x01070719,
            (1000, 42): 0x390585BE,
            (1000, 1069): 0x04DD5D6B,
            (1000000, 42): 0x04CACACF,
        },
    ),
    "eventual": (
        published.eventual_fingerprint,
        {(1069, 8, 1000): 0x3CDFDFEC, (42, 100, 10): 0x030F0F79},
    ),
    "alpha": (
        published.alpha,
        {
            **{(1069, t, 1, 1): v for t, v in enumerate((28, 45, 173, 81, 172, 184))},
            (1069, 3, 2, 4): 169,
        },
    ),
    "gamma": (published.gamma, {(0,): 43, (225,): 173}),
}


@pytest.mark.parametrize("name", HEX)
def test_published_vectors(name: str) -> None:
    function, values = HEX[name]
    assert {a: function(*a) for a in values} == values


def test_published_colors() -> None:
    assert [bytes(published.hash_color(1069, i)).hex() for i in range(1, 5)] == [
        "55b0e6",
        "c8a0c2",
        "ffa6c2",
        "789a20",
    ]
    assert published.float_bits(published.hash_color(1069, 1)) == (
        0x3EAAAAAB,
        0x3F30B0B1,
        0x3F66E6E7,
    )
    assert published.float_bits(published.eventual_color(1069, 1, 1000)) == (
        0x3E38B8B9,
        0x3E64E4E5,
        0x3E909091,
    )
    assert published.float_bits(published.eventual_color(1069, 2, 1000)) == (
        0x3F7CFCFD,
        0x3F37B7B8,
        0x3EC2C2C3,
    )
    assert published.cartesian_color(1069, 1, 1) == (67, 116, 231)
    assert published.cartesian_color(1069, 3, 5) == (194, 231, 177)
    assert published.cartesian_color(1069, 1, 1, 2) == (62, 90, 174)
    assert published.pipeline_stage_color(1069, 16, 0) == (118, 156, 125)
    assert published.pipeline_stage_color(1069, 17, 0) == (118, 156, 125)
    assert published.pipeline_stage_color(1069, 16, 1) == (185, 26, 20)
    ranges = [range(1, 23), range(23, 33)]
    fps = published.exo_fingerprints(ranges, 129, 4096)
    assert (*fps, published.combine(fps)) == (0x0458D8B1, 0x3A44C4D9, 0x3E1C1C68)
    assert published.exo_fingerprints(ranges, 128, 4096) == (0, 0)


def test_the_defect_of_the_published_formula_and_its_repair() -> None:
    """An even number of tokens gives 0, so a buffer of zeros passes; ours does not."""
    zeros = np.zeros((128, 64), "f4")
    assert published.xor_fingerprint(zeros) == published.expected_fingerprint(1069, 128, 64, 5)
    parts = create_exo_partitions([("a", 18.0), ("b", 8.0)], 32)
    assert verify_exo_ring(zeros, parts, 1).alarm
