"""Run-time fingerprints: what no static proof sees, bit flips and pieces dropped, swapped or stale.

A proof says that a program is right if the machine does what it is told. The checks here look at
what the machine did. They need numpy alone; every one says in its docstring what it sees, with what
certainty, and what it does not see. `docs/fingerprints.md` has the table of faults and checks.
"""

from verifier.fingerprint import legacy
from verifier.fingerprint.canary import (
    color_embeddings,
    color_hidden_states,
    color_logits,
    expected_fingerprint,
    layer_key,
)
from verifier.fingerprint.collectives import (
    handoff_key,
    verify_allgather,
    verify_alltoall,
    verify_broadcast,
    verify_coverage,
    verify_pipeline_handoff,
    verify_send_buffer,
)
from verifier.fingerprint.errors import FingerprintError
from verifier.fingerprint.exact import exact_all_reduce, expected_sum, ordered_sum, sum_canary
from verifier.fingerprint.exo import (
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
from verifier.fingerprint.faults import Fault, FaultInjector
from verifier.fingerprint.inference import verify_distributed_inference
from verifier.fingerprint.lifetimes import (
    KernelColorContext,
    eventual_color,
    eventual_fingerprint,
    kernel_color,
    kernel_finalize,
    verify_items,
)
from verifier.fingerprint.mix import key
from verifier.fingerprint.movement import (
    Fp,
    colors,
    common_width,
    coverage,
    decode,
    fingerprint,
    total,
)
from verifier.fingerprint.outcome import Verdict, combined, descriptor, verify_descriptors
from verifier.fingerprint.partition import (
    GAY_SEED,
    DistributedContext,
    TensorPartition,
)
from verifier.fingerprint.reductions import (
    verify_allreduce,
    verify_dp_gradients,
    verify_reduce_scatter,
    verify_replicated,
)
from verifier.fingerprint.region import Region
from verifier.fingerprint.sharded import ShardedTensor, combined_fingerprint, shard_fingerprint
from verifier.fingerprint.simulate import SimulatedCluster, verify_with_fault_injection
from verifier.fingerprint.sums import sample, signed_checksum

__all__ = [
    "GAY_SEED",
    "DistributedContext",
    "ExoCluster",
    "ExoPartition",
    "ExoVerifier",
    "Fault",
    "FaultInjector",
    "FingerprintError",
    "Fp",
    "KernelColorContext",
    "Region",
    "ShardedTensor",
    "SimulatedCluster",
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
    "legacy",
    "ordered_sum",
    "sample",
    "shard_fingerprint",
    "signed_checksum",
    "sum_canary",
    "total",
    "verify_allgather",
    "verify_allreduce",
    "verify_alltoall",
    "verify_broadcast",
    "verify_coverage",
    "verify_descriptors",
    "verify_distributed_inference",
    "verify_dp_gradients",
    "verify_exo_inference",
    "verify_exo_ring",
    "verify_items",
    "verify_pipeline_handoff",
    "verify_reduce_scatter",
    "verify_replicated",
    "verify_send_buffer",
    "verify_with_fault_injection",
]
