"""Checks of collectives that add, at the level that is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, expect, integer
from shardproof.synthesis.guard.fingerprint.exact import (
    check_canary_sum,
    check_exact_sum,
    check_replicas,
)
from shardproof.synthesis.guard.fingerprint.movement import Fp, fingerprint
from shardproof.synthesis.guard.fingerprint.outcome import Verdict, combined, same
from shardproof.synthesis.guard.fingerprint.partition import GAY_SEED, TensorPartition
from shardproof.synthesis.guard.fingerprint.region import Array, Region, checked
from shardproof.synthesis.guard.fingerprint.sums import Sample, check_sample, sample

Level = Literal["canary", "R", "T2", "T3"]
V = TypeVar("V")


def verify_replicated(copies: Sequence[Fp], op: str = "replicas") -> Verdict:
    """Whether all ranks hold the same bits (check R): fingerprints of the copies, one a rank."""
    return check_replicas(op, copies)


def verify_dp_gradients(gradients: Mapping[str, Sequence[Fp]]) -> Verdict:
    """Whether all replicas hold the same gradients after their all-reduce, by parameter.

    Raises:
        FingerprintError: no gradients, or not by parameter.
    """
    expect(gradients, Mapping, "verify_dp_gradients: expected fingerprints by parameter")
    return combined(same(f"gradient of {n}", "R", f, "not in sync") for n, f in gradients.items())


def verify_allreduce(
    reduced: Array,
    n_ranks: int,
    seed: int = GAY_SEED,
    *,
    level: Level = "canary",
    replicas: Sequence[Fp] | None = None,
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
    | T2 | `samples`: `sample(input, seed)` | faults that touch much of the tensor |
    | T3 | `inputs`, whole, added in the order of the ranks | all faults, to the bit |

    The functions named say what each does not see. `average=True` says that the ranks' mean was
    asked for (T2; T3 divides the sum); `flushes_subnormals` that the backend takes subnormal
    numbers for zero (T2).

    Raises:
        FingerprintError: what the level takes is missing or is not one a rank.
    """
    given = _Given(replicas, samples, inputs, average, precision, flushes_subnormals)
    return _verify_sum("all_reduce", reduced, n_ranks, seed, level, given)


@dataclass(frozen=True)
class _Given:
    replicas: Sequence[Fp] | None
    samples: Sequence[Sample] | None
    inputs: Sequence[Array] | None
    average: bool
    precision: str | None
    flushes_subnormals: bool
    region: Region | None = None


def _verify_sum(
    op: str, reduced: Array, n_ranks: int, seed: int, level: Level, by: _Given
) -> Verdict:
    reduced, n_ranks = checked(reduced, op), integer(n_ranks, f"{op}: n_ranks", 1)
    seed = integer(seed, f"{op}: seed")

    def need(what: str, given: Sequence[V] | None, kind: type) -> Sequence[V]:
        if given is None or len(given) != n_ranks:
            got = "none" if given is None else str(len(given))
            raise FingerprintError(
                f"{op}: level {level} takes {what} of each of {n_ranks} ranks, got {got}"
            )
        for rank, item in enumerate(given):
            expect(item, kind, f"{op}, rank {rank}: level {level} takes {what}")
        return given

    if level == "canary":
        if by.average:
            raise FingerprintError(f"{op}: canaries are for sums; averages take T2 or T3")
        return check_canary_sum(
            op, reduced, n_ranks, seed, region=by.region, precision=by.precision
        )
    if level == "R":
        fps = need("replicas", by.replicas, Fp)
        verdict = check_replicas(op, fps)
        mine = fingerprint(reduced, None, seed, width=fps[0].width)
        same(op, "R", [fps[0], mine], "")
        if mine in fps or not verdict:
            return verdict
        why = "the tensor here is none of the copies that the ranks reported"
        return replace(verdict, status="failed", actual=str(mine), probable_fault=why)
    if level == "T2":
        some = need("samples", by.samples, Sample)
        places = max(1, len(some[0].places))
        mine = sample(reduced, seed, samples=places, precision=by.precision)
        flushes = by.flushes_subnormals
        return check_sample(op, some, mine, average=by.average, flushes_subnormals=flushes)
    if level == "T3":
        whole = need("inputs", by.inputs, object)
        return check_exact_sum(op, whole, reduced, seed, average=by.average)
    raise FingerprintError(f"{op}: level {level!r}; one of canary, R, T2, T3")


def verify_reduce_scatter(
    piece: Array,
    partition: TensorPartition,
    n_ranks: int,
    seed: int = GAY_SEED,
    *,
    level: Level = "canary",
    samples: Sequence[Sample] | None = None,
    inputs: Sequence[Array] | None = None,
    average: bool = False,
    precision: str | None = None,
    flushes_subnormals: bool = False,
) -> Verdict:
    """Whether a rank's piece is its part of the sum of the ranks' inputs.

    As `verify_allreduce`; what the ranks hand over is taken of this piece of their inputs
    (`partition.region().cut(x)`). In canary mode the inputs were whole `sum_canary` tensors. There
    is no level R: no two ranks hold the same piece.

    Raises:
        FingerprintError: what the level takes is missing, or the piece is not that of its shard.
    """
    piece = checked(piece, "reduce_scatter")
    if level == "R":
        raise FingerprintError("verify_reduce_scatter: no two ranks hold the same piece; T2, T3")
    region = partition.region(piece.shape)
    given = _Given(None, samples, inputs, average, precision, flushes_subnormals, region)
    return _verify_sum("reduce_scatter", piece, n_ranks, seed, level, given)
