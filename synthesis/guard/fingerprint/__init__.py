"""Run-time fingerprints: what no static proof sees, bit flips and pieces dropped, swapped or stale.

A proof says that a program is right if the machine does what it is told. The checks here look at
what the machine did. They need numpy alone; every one says in its docstring what it sees, with what
certainty, and what it does not see. `docs/guard.md` has the table of faults and checks.
"""

from shardproof.synthesis.guard.fingerprint.canary import (
    color_embeddings as color_embeddings,
    color_hidden_states as color_hidden_states,
    color_logits as color_logits,
    expected_fingerprint as expected_fingerprint,
    layer_key as layer_key,
)
from shardproof.synthesis.guard.fingerprint.collectives import (
    handoff_key as handoff_key,
    verify_allgather as verify_allgather,
    verify_alltoall as verify_alltoall,
    verify_broadcast as verify_broadcast,
    verify_coverage as verify_coverage,
    verify_pipeline_handoff as verify_pipeline_handoff,
    verify_send_buffer as verify_send_buffer,
)
from shardproof.synthesis.guard.fingerprint.errors import FingerprintError as FingerprintError
from shardproof.synthesis.guard.fingerprint.exact import (
    exact_all_reduce as exact_all_reduce,
    expected_sum as expected_sum,
    ordered_sum as ordered_sum,
    sum_canary as sum_canary,
)
from shardproof.synthesis.guard.fingerprint.exo import (
    ExoCluster as ExoCluster,
    ExoPartition as ExoPartition,
    ExoVerifier as ExoVerifier,
    create_exo_partitions as create_exo_partitions,
    exo_color as exo_color,
    exo_report as exo_report,
    exo_ring_route as exo_ring_route,
    verify_exo_inference as verify_exo_inference,
    verify_exo_ring as verify_exo_ring,
)
from shardproof.synthesis.guard.fingerprint.lifetimes import (
    KernelColorContext as KernelColorContext,
    eventual_color as eventual_color,
    eventual_fingerprint as eventual_fingerprint,
    kernel_color as kernel_color,
    kernel_finalize as kernel_finalize,
    verify_items as verify_items,
)
from shardproof.synthesis.guard.fingerprint.mix import key as key
from shardproof.synthesis.guard.fingerprint.movement import (
    Fp as Fp,
    colors as colors,
    common_width as common_width,
    coverage as coverage,
    decode as decode,
    fingerprint as fingerprint,
    total as total,
)
from shardproof.synthesis.guard.fingerprint.outcome import (
    Verdict as Verdict,
    combined as combined,
    descriptor as descriptor,
    verify_descriptors as verify_descriptors,
)
from shardproof.synthesis.guard.fingerprint.partition import (
    GAY_SEED as GAY_SEED,
    DistributedContext as DistributedContext,
    TensorPartition as TensorPartition,
)
from shardproof.synthesis.guard.fingerprint.reductions import (
    verify_allreduce as verify_allreduce,
    verify_dp_gradients as verify_dp_gradients,
    verify_reduce_scatter as verify_reduce_scatter,
    verify_replicated as verify_replicated,
)
from shardproof.synthesis.guard.fingerprint.region import Region as Region
from shardproof.synthesis.guard.fingerprint.sharded import (
    ShardedTensor as ShardedTensor,
    combined_fingerprint as combined_fingerprint,
    shard_fingerprint as shard_fingerprint,
)
from shardproof.synthesis.guard.fingerprint.sums import sample as sample
