"""Losses of generated models, by what they are: how often, and lines that set `loss`.

`y` are the outputs, `target` and `mask` inputs, `/ B` divides by the extent of the batch.
"""

from __future__ import annotations

ROW_LOSSES: dict[str, tuple[float, str]] = {
    "cross entropy": (6, "loss = F.cross_entropy(y, target)"),
    "cross entropy ignoring": (2, "loss = F.cross_entropy(y, target, ignore_index=-1)"),
    "cross entropy summed": (2, 'loss = F.cross_entropy(y, target, reduction="sum")'),
    "summed over batch extent": (
        2,
        'loss = F.cross_entropy(y, target, reduction="sum") / y.shape[0]',
    ),
    "summed over a number": (1, 'loss = F.cross_entropy(y, target, reduction="sum") / B'),
    "smoothed": (1, "loss = F.cross_entropy(y, target, label_smoothing=0.1)"),
    "clamped mean": (2, "loss = F.cross_entropy(y, target).clamp(max=2.0)"),
    "mean of clamped": (
        2,
        'loss = F.cross_entropy(y, target, reduction="none").clamp(max=2.0).mean()',
    ),
    "root of the mean": (1, "loss = torch.sqrt(F.cross_entropy(y, target) + 1e-6)"),
    "with the size of outputs": (2, "loss = F.cross_entropy(y, target) + 0.01 * y.pow(2).mean()"),
    "with the sum of outputs": (1, "loss = F.cross_entropy(y, target) + 0.01 * y.pow(2).sum()"),
    "with the first row": (1, "loss = F.cross_entropy(y, target) + (y[0] ** 2).mean()"),
    "with the largest": (1, "loss = F.cross_entropy(y, target) + 0.1 * y.amax()"),
    "with logsumexp": (
        1,
        "large = torch.log(torch.exp(y).sum(-1))\n"
        "loss = F.cross_entropy(y, target) + 0.01 * large.pow(2).mean()",
    ),
    "with logsumexp over the batch": (
        1,
        "large = y.exp().sum(0).log()\nloss = F.cross_entropy(y, target) + 0.1 * large.mean()",
    ),
    "weighted by position": (
        1,
        "weights = torch.arange(y.shape[0], dtype=y.dtype)\n"
        'loss = (F.cross_entropy(y, target, reduction="none") * weights).mean()',
    ),
    "negative log likelihood": (2, "loss = F.nll_loss(F.log_softmax(y, dim=-1), target)"),
    "by hand": (
        2,
        "logs = y - torch.log(torch.exp(y).sum(dim=-1, keepdim=True))\n"
        "loss = -logs.gather(1, target[:, None]).mean()",
    ),
    "contrastive": (
        2,
        "z = y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) + 1e-6)\n"
        "loss = F.cross_entropy(z @ z.t(), torch.arange(z.shape[0]))",
    ),
    "covariance": (1, "c = y - y.mean(0)\nloss = (c.t() @ c / y.shape[0]).pow(2).mean()"),
}
VALUE_LOSSES: dict[str, tuple[float, str]] = {
    "squares": (4, "loss = F.mse_loss(y, target)"),
    "squares summed": (2, 'loss = F.mse_loss(y, target, reduction="sum")'),
    "squares summed over batch extent": (2, "loss = ((y - target) ** 2).sum() / y.shape[0]"),
    "squares of rows": (2, "loss = ((y - target) ** 2).sum(-1).mean()"),
    "norm of differences": (1, "loss = (y - target).pow(2).sum().sqrt()"),
    "absolute": (1, "loss = (y - target).abs().mean()"),
    "largest difference": (1, "loss = (y - target).abs().amax()"),
    "soft largest": (1, "loss = (0.01 * (y - target).pow(2).sum(-1)).exp().sum(0).log()"),
    "soft largest of the library": (0.3, "loss = torch.logsumexp((y - target).pow(2).sum(-1), 0)"),
    "correlation": (
        1,
        "size = (y.pow(2).sum(-1) * target.pow(2).sum(-1) + 1e-6).sqrt()\n"
        "loss = 1 - ((y * target).sum(-1) / size).mean()",
    ),
    "squares over numel": (1, "loss = ((y - target) ** 2).sum() / y.numel()"),
}
TOKEN_LOSSES: dict[str, tuple[float, str]] = {
    "cross entropy": (4, "loss = F.cross_entropy(y.flatten(0, 1), target.flatten())"),
    "cross entropy viewed": (3, "loss = F.cross_entropy(y.view(-1, y.size(-1)), target.view(-1))"),
    "cross entropy transposed": (0.3, "loss = F.cross_entropy(y.transpose(1, 2), target)"),
    "cross entropy ignoring": (
        4,
        "loss = F.cross_entropy(y.view(-1, y.size(-1)), target.reshape(-1), ignore_index=-1)",
    ),
    "cross entropy summed": (
        2,
        'loss = F.cross_entropy(y.flatten(0, 1), target.flatten(), reduction="sum")',
    ),
    "summed over the batch": (
        2,
        'loss = F.cross_entropy(y.flatten(0, 1), target.flatten(), reduction="sum") / y.shape[0]',
    ),
    "summed, ignoring": (
        1,
        "loss = F.cross_entropy(\n"
        '    y.flatten(0, 1), target.flatten(), ignore_index=-100, reduction="sum"\n'
        ")",
    ),
    "tokens counted": (
        3,
        'per = F.cross_entropy(y.flatten(0, 1), target.flatten(), reduction="none")\n'
        "keep = (target.flatten() != 0).to(per.dtype)\n"
        "loss = (per * keep).sum() / keep.sum()",
    ),
    "masked mean": (
        2,
        'per = F.cross_entropy(y.flatten(0, 1), target.flatten(), reduction="none")\n'
        "per = per.view(target.shape)\n"
        "loss = (per * mask).sum() / mask.sum()",
    ),
    "mean of row means": (
        1,
        'per = F.cross_entropy(y.flatten(0, 1), target.flatten(), reduction="none")\n'
        "per = per.view(target.shape)\n"
        "loss = ((per * mask).sum(1) / (mask.sum(1) + 1)).mean()",
    ),
    "shifted": (
        2,
        "loss = F.cross_entropy(y[:, :-1].flatten(0, 1), target[:, 1:].flatten())",
    ),
    "clamped mean": (1, "loss = F.cross_entropy(y.flatten(0, 1), target.flatten()).clamp(max=2.7)"),
    "with z loss": (
        2,
        "loss = F.cross_entropy(y.flatten(0, 1), target.flatten())\n"
        "loss = loss + 1e-2 * y.exp().sum(-1).log().pow(2).mean()",
    ),
    "with balance over the batch": (
        1,
        "loss = F.cross_entropy(y.flatten(0, 1), target.flatten())\n"
        "loss = loss + y.softmax(-1).mean((0, 1)).pow(2).sum()",
    ),
}
