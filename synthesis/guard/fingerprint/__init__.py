"""Run-time fingerprints: what no static proof sees, bit flips and pieces dropped, swapped or stale.

A proof says that a program is right if the machine does what it is told. The checks here look at
what the machine did. They need numpy alone; every one says in its docstring what it sees, with what
certainty, and what it does not see. `docs/guard.md` has the table of faults and checks.
"""

from synthesis.guard.fingerprint.canary import (
    color_embeddings,
    color_hidden_states,
    color_logits,
    expected_fingerprint,
    layer_key,
)
from synthesis.guard.fingerprint.collectives import (
    handoff_key,
    verify_allgather,
    verify_alltoall,
    verify_broadcast,
    verify_coverage,
    verify_pipeline_handoff,
    verify_send_buffer,
)
from synthesis.guard.fingerprint.errors import FingerprintError
from synthesis.guard.fingerprint.exact import (
    exact_all_reduce,
    expected_sum,
    ordered_sum,
    sum_canary,
)
from synthesis.guard.fingerprint.exo import (
    ExoCluster,
    ExoPartition,
    ExoVerifier,
    create_exo_partitions,
    exo_color,
    exo_report,
    exo_ring_route,
    verify_exo_inference,
    verify_exo_ring,
)
from synthesis.guard.fingerprint.lifetimes import (
    KernelColorContext,
    eventual_color,
    eventual_fingerprint,
    kernel_color,
    kernel_finalize,
    verify_items,
)
from synthesis.guard.fingerprint.mix import key
from synthesis.guard.fingerprint.movement import (
    Fp,
    colors,
    common_width,
    coverage,
    decode,
    fingerprint,
    total,
)
from synthesis.guard.fingerprint.outcome import Verdict, combined, descriptor, verify_descriptors
from synthesis.guard.fingerprint.partition import (
    GAY_SEED,
    DistributedContext,
    TensorPartition,
)
from synthesis.guard.fingerprint.reductions import (
    verify_allreduce,
    verify_dp_gradients,
    verify_reduce_scatter,
    verify_replicated,
)
from synthesis.guard.fingerprint.region import Region
from synthesis.guard.fingerprint.sharded import (
    ShardedTensor,
    combined_fingerprint,
    shard_fingerprint,
)
from synthesis.guard.fingerprint.sums import sample

__all__ = [
    "GAY_SEED",
    "DistributedContext",
    "ExoCluster",
    "ExoPartition",
    "ExoVerifier",
    "FingerprintError",
    "Fp",
    "KernelColorContext",
    "Region",
    "ShardedTensor",
    "TensorPartition",
    "Verdict",
    "color_embeddings",
    "color_hidden_states",
    "color_logits",
    "colors",
    "combined",
    "combined_fingerprint",
    "common_width",
    "coverage",
    "create_exo_partitions",
    "decode",
    "descriptor",
    "eventual_color",
    "eventual_fingerprint",
    "exact_all_reduce",
    "exo_color",
    "exo_report",
    "exo_ring_route",
    "expected_fingerprint",
    "expected_sum",
    "fingerprint",
    "handoff_key",
    "kernel_color",
    "kernel_finalize",
    "key",
    "layer_key",
    "ordered_sum",
    "sample",
    "shard_fingerprint",
    "sum_canary",
    "total",
    "verify_allgather",
    "verify_allreduce",
    "verify_alltoall",
    "verify_broadcast",
    "verify_coverage",
    "verify_descriptors",
    "verify_dp_gradients",
    "verify_exo_inference",
    "verify_exo_ring",
    "verify_items",
    "verify_pipeline_handoff",
    "verify_reduce_scatter",
    "verify_replicated",
    "verify_send_buffer",
]
