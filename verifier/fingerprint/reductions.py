"""Checks of collectives that add, at the level that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from verifier.fingerprint.errors import FingerprintError
from verifier.fingerprint.exact import check_canary_sum, check_exact_sum, check_replicas
from verifier.fingerprint.movement import Fp, fingerprint
from verifier.fingerprint.outcome import Verdict, combined, same
from verifier.fingerprint.partition import GAY_SEED, TensorPartition
from verifier.fingerprint.region import Array, checked
from verifier.fingerprint.sums import (
    Checksum,
    Sample,
    check_sample,
    check_sums,
    sample,
    signed_checksum,
)

Level = Literal["canary", "R", "T1", "T2", "T3"]
V = TypeVar("V")


def verify_replicated(copies: Sequence[Fp], op: str = "replicas") -> Verdict:
    """Whether all ranks hold the same bits (check R): fingerprints of the copies, one a rank."""
    return check_replicas(op, copies)


def verify_dp_gradients(gradients: Mapping[str, Sequence[Fp]]) -> Verdict:
    """Whether all replicas hold the same gradients after their all-reduce, by parameter.

    Raises:
        FingerprintError: no gradients.
    """
    return combined(same(f"gradient of {n}", "R", f, "not in sync") for n, f in gradients.items())


def verify_allreduce(
    reduced: Array,
    n_ranks: int,
    *,
    seed: int = GAY_SEED,
    level: Level = "canary",
    replicas: Sequence[Fp] | None = None,
    checksums: Sequence[Checksum] | None = None,
    samples: Sequence[Sample] | None = None,
    inputs: Sequence[Array] | None = None,
    average: bool = False,
    precision: str | None = None,
    flushes_subnormals: bool = False,
) -> Verdict:
    """Whether an all-reduced tensor is the sum of the ranks' inputs.

    | level | takes, one a rank | guarantee |
    |---|---|---|
    | canary | nothing: the inputs were `sum_canary(..., key=seed)` | wiring faults, to the bit |
    | R | `replicas`: fingerprints of all outputs, key `seed` | any fault not common to all ranks |
    | T1 | `checksums`: `signed_checksum(input, seed)` | large faults of any block; no bit flips |
    | T2 | `samples`: `sample(input, seed)` | faults that touch much of the tensor |
    | T3 | `inputs`, whole, added in the order of the ranks | all faults, to the bit |

    The functions named say what each does not see.

    Raises:
        FingerprintError: what the level takes is missing or is not one a rank.
    """
    reduced = checked(reduced, "verify_allreduce")

    def need(what: str, given: Sequence[V] | None) -> Sequence[V]:
        if given is None or len(given) != n_ranks:
            got = "none" if given is None else str(len(given))
            raise FingerprintError(
                f"verify_allreduce: level {level} takes {what} of each of {n_ranks} ranks, "
                f"got {got}"
            )
        return given

    if level == "canary":
        if average:
            raise FingerprintError(
                "verify_allreduce: canaries are for sums; averages take T1 or T2"
            )
        return check_canary_sum("all_reduce", reduced, n_ranks, seed, precision=precision)
    if level == "R":
        fps = need("replicas", replicas)
        verdict = check_replicas("all_reduce", fps)
        mine = fingerprint(reduced, None, seed, width=fps[0].width)
        same("all_reduce", "R", [fps[0], mine], "")
        if mine in fps or not verdict:
            return verdict
        why = "the tensor here is none of the copies that the ranks reported"
        return replace(verdict, status="failed", actual=str(mine), probable_fault=why)
    if level == "T1":
        sums = need("checksums", checksums)
        out = signed_checksum(reduced, seed, block=sums[0].block, precision=precision)
        return check_sums(
            "all_reduce", sums, out, average=average, flushes_subnormals=flushes_subnormals
        )
    if level == "T2":
        some = need("samples", samples)
        places = max(1, len(some[0].places))
        return check_sample(
            "all_reduce",
            some,
            sample(reduced, seed, samples=places, precision=precision),
            average=average,
            flushes_subnormals=flushes_subnormals,
        )
    if level == "T3":
        return check_exact_sum("all_reduce", need("inputs", inputs), reduced, seed)
    raise FingerprintError(f"verify_allreduce: level {level!r}; one of canary, R, T1, T2, T3")


def verify_reduce_scatter(
    piece: Array,
    partition: TensorPartition,
    n_ranks: int,
    *,
    seed: int = GAY_SEED,
    level: Level = "canary",
    checksums: Sequence[Checksum] | None = None,
    samples: Sequence[Sample] | None = None,
    inputs: Sequence[Array] | None = None,
    average: bool = False,
    precision: str | None = None,
) -> Verdict:
    """Whether a rank's piece is its part of the sum of the ranks' inputs.

    As `verify_allreduce`; what the ranks hand over is taken of this piece of their inputs
    (`partition.region().cut(x)`). In canary mode the inputs were whole `sum_canary` tensors. There
    is no level R: no two ranks hold the same piece.
    """
    piece = checked(piece, "verify_reduce_scatter")
    if level == "R":
        raise FingerprintError(
            "verify_reduce_scatter: no two ranks hold the same piece; T1, T2, T3"
        )
    region = partition.region(piece.shape)
    if level == "canary":
        return check_canary_sum(
            "reduce_scatter", piece, n_ranks, seed, region=region, precision=precision
        )
    verdict = verify_allreduce(
        piece,
        n_ranks,
        seed=seed,
        level=level,
        checksums=checksums,
        samples=samples,
        inputs=inputs,
        average=average,
        precision=precision,
    )
    return replace(verdict, op="reduce_scatter")
