import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, input):
        ctx.group = group
        input = input.contiguous()
        output = torch.empty_like(input)
        dist.all_to_all_single(output, input, group=group)
        return output

    @staticmethod
    def backward(ctx, *grad_output):
        return (None, _AllToAll.apply(ctx.group, *grad_output))


class Experts(nn.Module):
    def __init__(self, width, num_local_experts):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(num_local_experts, width, 2 * width) * 0.1)
        self.b1 = nn.Parameter(torch.zeros(num_local_experts, 2 * width))
        self.w2 = nn.Parameter(torch.randn(num_local_experts, 2 * width, width) * 0.1)
        for param in self.parameters():
            param.allreduce = False

    def forward(self, inputs):
        outputs = []
        for i, chunk in enumerate(inputs.unbind(dim=1)):
            outputs.append(F.gelu(chunk @ self.w1[i] + self.b1[i]) @ self.w2[i])
        return torch.stack(outputs, dim=1)


def top1gating(logits, group):
    """Every token keeps its place of its rank's own slots: as many as it has tokens."""
    gates = F.softmax(logits, dim=1)
    capacity = gates.shape[0]
    num_experts = gates.shape[1]
    mask1 = F.one_hot(torch.argmax(gates, dim=1), num_classes=num_experts)
    me = torch.mean(gates, dim=0)
    ce = torch.mean(mask1.float(), dim=0)
    if group is not None:
        dist.all_reduce(ce, group=group)
        ce /= dist.get_world_size(group)
    l_aux = torch.sum(me * ce) * num_experts
    locations1 = torch.cumsum(mask1, dim=0) - 1
    locations1_s = torch.sum(locations1 * mask1, dim=1)
    gates1_s = (gates * mask1.float()).sum(dim=1)
    gates1 = gates1_s.unsqueeze(1) * mask1.float()
    locations1_sc = F.one_hot(locations1_s, num_classes=capacity).float()
    combine_weights = torch.einsum("se,sc->sec", gates1, locations1_sc)
    dispatch_mask = combine_weights.bool()
    return l_aux, combine_weights, dispatch_mask


class MOELayer(nn.Module):
    def __init__(self, width, num_experts, group=None):
        super().__init__()
        self.group = group
        self.ep_size = dist.get_world_size(group) if group is not None else 1
        self.num_local_experts = num_experts // self.ep_size
        self.wg = nn.Linear(width, num_experts, bias=False)
        self.experts = Experts(width, self.num_local_experts)

    def forward(self, input):
        d_model = input.shape[-1]
        reshaped_input = input.reshape(-1, d_model)
        self.l_aux, combine_weights, dispatch_mask = top1gating(self.wg(reshaped_input), self.group)
        dispatched_input = torch.einsum("sec,sm->ecm", dispatch_mask.type_as(input), reshaped_input)
        if self.group is not None:
            dispatched_input = _AllToAll.apply(self.group, dispatched_input)
        dispatched_input = dispatched_input.reshape(
            self.ep_size, self.num_local_experts, -1, d_model
        )
        expert_output = self.experts(dispatched_input)
        expert_output = expert_output.reshape(self.ep_size * self.num_local_experts, -1, d_model)
        if self.group is not None:
            expert_output = _AllToAll.apply(self.group, expert_output)
        combined_output = torch.einsum("sec,ecm->sm", combine_weights.type_as(input), expert_output)
        return combined_output.reshape(input.shape)
