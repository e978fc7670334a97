import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def get_world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


class Detector(nn.Module):
    def __init__(self, width=6, classes=3):
        super().__init__()
        self.input_proj = nn.Linear(5, width)
        self.class_embed = nn.Linear(width, classes)
        self.bbox_embed = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, features):
        hs = F.relu(self.input_proj(features))
        return {"pred_logits": self.class_embed(hs), "pred_boxes": self.bbox_embed(hs).sigmoid()}


def sigmoid_focal_loss(inputs, targets, num_boxes, alpha=0.25, gamma=2):
    prob = inputs.sigmoid()
    ce_loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = prob * targets + (1 - prob) * (1 - targets)
    loss = ce_loss * ((1 - p_t) ** gamma)
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    return (alpha_t * loss).mean(1).sum() / num_boxes


class SetCriterion(nn.Module):
    """Of each query the target is given; class `num_classes` is no object."""

    def __init__(self, num_classes=3):
        super().__init__()
        self.num_classes = num_classes
        self.weight_dict = {"loss_ce": 2.0, "loss_bbox": 5.0}

    def forward(self, outputs, labels, boxes):
        num_boxes = (labels != self.num_classes).sum().float()
        if dist.is_initialized():
            dist.all_reduce(num_boxes)
        num_boxes = (torch.clamp(num_boxes, min=1) / get_world_size()).item()
        logits = outputs["pred_logits"]
        onehot = F.one_hot(labels, self.num_classes + 1)[:, :, :-1].to(logits.dtype)
        loss_ce = sigmoid_focal_loss(logits, onehot, num_boxes) * logits.shape[1]
        loss_bbox = F.l1_loss(outputs["pred_boxes"], boxes, reduction="none").sum(-1)
        matched = (labels != self.num_classes).to(loss_bbox.dtype)
        return {"loss_ce": loss_ce, "loss_bbox": (loss_bbox * matched).sum() / num_boxes}


def reduce_dict(input_dict):
    if get_world_size() < 2:
        return input_dict
    with torch.no_grad():
        names = sorted(input_dict)
        values = torch.stack([input_dict[name] for name in names], dim=0)
        dist.all_reduce(values)
        values /= get_world_size()
    return dict(zip(names, values))


def build(model):
    heads = [p for n, p in model.named_parameters() if "input_proj" not in n]
    trunk = [p for n, p in model.named_parameters() if "input_proj" in n]
    groups = [{"params": heads}, {"params": trunk, "lr": 1e-4}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, weight_decay=1e-2)
    return model, SetCriterion(), optimizer


def single():
    return build(Detector())


def parallel():
    return build(DistributedDataParallel(Detector()))


def train_step(model, criterion, optimizer, features, labels, boxes):
    loss_dict = criterion(model(features), labels, boxes)
    weight_dict = criterion.weight_dict
    losses = sum(loss_dict[k] * weight_dict[k] for k in loss_dict)
    loss_dict_reduced = reduce_dict(loss_dict)
    loss_value = sum(v * weight_dict[k] for k, v in loss_dict_reduced.items())
    optimizer.zero_grad()
    losses.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss_value.detach()
