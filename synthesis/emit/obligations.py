"""What the caller of emitted code must do, in sentences."""

from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.parallelize import held_whole
from shardproof.synthesis.planner.plan import Plan


def obligations(plan: Plan, facts: ModelFacts) -> tuple[str, ...]:
    """The plan's own obligations, then those that follow from how the code is emitted."""
    out = list(plan.obligations)
    out.append(f"Start {plan.mesh.size} processes, one for each rank of the mesh {plan.mesh}.")
    out.append("Build the model with the same weights on every rank (seed or checkpoint).")
    if plan.tp and plan.tp_size > 1:
        out.append(f"Give all ranks of one {plan.tp} group the same batch.")
        if any(m.training_dropout for m in facts.modules):
            out.append(
                "Set dropout to 0 to reproduce one device: inside sharded heads and features each "
                f"rank of {plan.tp} draws its own mask, elsewhere the ranks need the same seed."
            )
        if any(m.style == "fused_column" for m in plan.modules):
            out.append(
                "Load checkpoints of one device before parallelize(), and save full_tensor() of "
                "each parameter: shards of fused weights are not contiguous rows."
            )
    if plan.dp and plan.batch_ranks > 1:
        ranks = " x ".join(plan.batch_dims)
        out.append(f"Give each {ranks} rank its own equal part of the batch.")
        if plan.loss == "sum":
            out.append(
                f"Backward each {ranks} rank's own loss: gradients are added up over the ranks, "
                "and the loss of one device is the sum of theirs."
            )
        else:
            out.append(
                f"Backward each {ranks} rank's own loss: gradients are averaged over the ranks, "
                "and the loss of one device is the mean of theirs."
            )
        names = [name for name, _ in plan.mesh.dims]
        if plan.tp in names[: names.index(plan.dp)] and held_whole(plan, facts):
            out.append(
                f"Clip gradients on a mesh with {plan.dp} before {plan.tp}: fully_shard puts "
                "parameters on such a one, and those that it leaves whole lie on this mesh."
            )
    if plan.cp:
        out.append(f"Give all ranks of one {plan.cp} group the same sequences, whole.")
        out.append(
            f"Backward each {plan.cp} rank's own loss: gradients are averaged over the ranks, and "
            "the loss of one device is the mean of theirs."
        )
        out.append(f"Use a sequence length divisible by {plan.cp}={plan.mesh[plan.cp]}.")
    if plan.sequence_parallel:
        out.append(f"Use a sequence length divisible by {plan.tp}={plan.tp_size}.")
    return tuple(dict.fromkeys(out))
