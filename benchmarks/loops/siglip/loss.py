import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def neighbour_exchange(from_rank, to_rank, tensor, group=None):
    tensor_recv = torch.zeros_like(tensor)
    send_op = dist.P2POp(dist.isend, tensor, to_rank, group=group)
    recv_op = dist.P2POp(dist.irecv, tensor_recv, from_rank, group=group)
    for req in dist.batch_isend_irecv([send_op, recv_op]):
        req.wait()
    return tensor_recv


class NeighbourExchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, from_rank, to_rank, group, tensor):
        ctx.group, ctx.from_rank, ctx.to_rank = group, from_rank, to_rank
        return neighbour_exchange(from_rank, to_rank, tensor, group=group)

    @staticmethod
    def backward(ctx, grad_output):
        return (None, None, None) + (
            NeighbourExchange.apply(ctx.to_rank, ctx.from_rank, ctx.group, grad_output),
        )


def neighbour_exchange_with_grad(from_rank, to_rank, tensor, group=None):
    return NeighbourExchange.apply(from_rank, to_rank, group, tensor)


class SigLipLoss(nn.Module):
    """Text features go round the ring; each rank keeps its images."""

    def __init__(self, rank=0, world_size=1):
        super().__init__()
        self.rank = rank
        self.world_size = world_size

    def get_ground_truth(self, num_logits, negative_only=False):
        labels = -torch.ones((num_logits, num_logits))
        if not negative_only:
            labels = 2 * torch.eye(num_logits) + labels
        return labels

    def get_logits(self, image_features, text_features, logit_scale, logit_bias):
        return logit_scale * image_features @ text_features.T + logit_bias

    def _loss(self, image_features, text_features, logit_scale, logit_bias, negative_only=False):
        logits = self.get_logits(image_features, text_features, logit_scale, logit_bias)
        labels = self.get_ground_truth(image_features.shape[0], negative_only=negative_only)
        return -F.logsigmoid(labels * logits).sum() / image_features.shape[0]

    def forward(self, image_features, text_features, logit_scale, logit_bias):
        loss = self._loss(image_features, text_features, logit_scale, logit_bias)
        if self.world_size > 1:
            right_rank = (self.rank + 1) % self.world_size
            left_rank = (self.rank - 1 + self.world_size) % self.world_size
            text_features_to_right = text_features
            for _ in range(self.world_size - 1):
                text_features_from_left = neighbour_exchange_with_grad(
                    left_rank, right_rank, text_features_to_right
                )
                loss += self._loss(
                    image_features,
                    text_features_from_left,
                    logit_scale,
                    logit_bias,
                    negative_only=True,
                )
                text_features_to_right = text_features_from_left
        return loss
