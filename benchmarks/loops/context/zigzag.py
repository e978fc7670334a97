import torch
import torch.distributed as dist
import torch.nn.functional as F


def positions(rank, world_size, local):
    """Where the tokens of a rank stand in the sequence: those of one chunk from each end."""
    chunk = local // 2
    early = torch.arange(rank * chunk, (rank + 1) * chunk)
    last = 2 * world_size - 1 - rank
    return torch.cat([early, torch.arange(last * chunk, (last + 1) * chunk)])


class GatherSequence(torch.autograd.Function):
    """Keys or values of all ranks, one rank after the other."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=2)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        size, rank = dist.get_world_size(ctx.group), dist.get_rank(ctx.group)
        return grad.chunk(size, dim=2)[rank], None


def zigzag_attn(q, k, v, group=None):
    """Causal attention of the tokens of a rank on those of all."""
    if group is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    world_size, local = dist.get_world_size(group), q.shape[2]
    k, v = GatherSequence.apply(k, group), GatherSequence.apply(v, group)
    rows = positions(dist.get_rank(group), world_size, local)
    cols = torch.cat([positions(r, world_size, local) for r in range(world_size)])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=rows[:, None] >= cols[None, :])
