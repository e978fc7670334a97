"""Ops of PyTorch beside those of transformers are captured as PyTorch computes them, with their
gradients."""

from __future__ import annotations

import pytest

from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from tests.frontend.test_capture import agrees

pytestmark = pytest.mark.torch

FILE = """import torch
import torch.nn as nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn({shape}))
        self.n = {layer}
    def forward(self, x):
        h = x * self.w
        ids = (x.abs() * 2).long()
        return {result}
def example_inputs():
    return {{"x": torch.randn({shape})}}
"""
IMAGE, TABLE, DEEP = "2, 4, 6, 6", "4, 6", "4, 6, 3"
LAYERS = {
    "group norm": (IMAGE, "nn.GroupNorm(2, 4)", "self.n(h)"),
    "instance norm": (IMAGE, "nn.InstanceNorm2d(4, affine=True)", "self.n(h)"),
    "batch norm": (IMAGE, "nn.BatchNorm2d(4)", "self.n(h)"),
    "batch norm without weights": ("4, 3", "nn.BatchNorm1d(3, affine=False)", "self.n(h)"),
    "batch norm of known statistics": (
        IMAGE,
        "nn.BatchNorm2d(4)",
        "F.batch_norm(h, h.new_zeros(4), h.new_ones(4), self.n.weight, self.n.bias)",
    ),
    "weight norm": (
        "2, 3, 8",
        "nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))",
        "self.n(h)",
    ),
    "transposed": (
        IMAGE,
        "nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1)",
        "self.n(h)",
    ),
    "transposed, in groups": (IMAGE, "nn.ConvTranspose2d(4, 6, 2, 2, groups=2)", "self.n(h)"),
    "lstm": ("2, 3, 4", "nn.LSTM(4, 5, 2, batch_first=True)", "self.n(h)[0]"),
    "gru": ("2, 3, 4", "nn.GRU(4, 5, batch_first=True, bidirectional=True)", "self.n(h)[0]"),
    "transformer with a causal mask": (
        "2, 3, 4",
        "nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 1,"
        " enable_nested_tensor=False)",
        "self.n(h, torch.full((3, 3), -torch.inf).triu(1))",
    ),
    "bags": ("4, 4", "nn.EmbeddingBag(9, 4, mode='sum', padding_idx=0)", "self.n(ids) * h"),
    "bags of the largest": ("4, 4", "nn.EmbeddingBag(9, 4, mode='max')", "self.n(ids) * h"),
    "bags by offsets": (
        "4, 4",
        "nn.EmbeddingBag(9, 4, mode='mean')",
        "self.n(ids.flatten(), torch.tensor([0, 3, 3, 8])) * h",
    ),
    "bags with weights": (
        "4, 4",
        "nn.EmbeddingBag(9, 4, mode='sum')",
        "self.n(ids, per_sample_weights=h) * h",
    ),
}
RESULTS = {
    "max pool": (IMAGE, "F.max_pool2d(h, 3, 2, 1)"),
    "max pool, dilated": ("2, 4, 7, 6", "F.max_pool2d(h, 2, 1, dilation=2)"),
    "average pool": (IMAGE, "F.avg_pool2d(h, 2)"),
    "average pool, padded": (IMAGE, "F.avg_pool2d(h, 3, 2, 1, count_include_pad=False)"),
    "average pool, a rest": ("2, 4, 7, 6", "F.avg_pool2d(h, 2, ceil_mode=True)"),
    "adaptive": (IMAGE, "F.adaptive_avg_pool2d(h, 4) + F.adaptive_max_pool2d(h, 4)"),
    "nearest": (IMAGE, "F.interpolate(h, scale_factor=2) + F.interpolate(h, size=(12, 12))"),
    "bilinear": (IMAGE, "F.interpolate(h, scale_factor=2, mode='bilinear')"),
    "bilinear to corners": (
        IMAGE,
        "F.interpolate(h, size=(9, 4), mode='bilinear', align_corners=True)",
    ),
    "padded by the edge": (IMAGE, "F.pad(h, (1, 1, 2, 1), mode='replicate')"),
    "patches": (IMAGE, "F.unfold(h, 3, padding=1)"),
    "windows": ("2, 8", "h.unfold(1, 4, 2)"),
    "diagonal": ("4, 4", "h.diagonal(1)[:, None] + h.trace()"),
    "einsum": ("4, 6", "torch.einsum('ij,kj,k->ik', h, x, h[:, 0])"),
    "products": (TABLE, "h.cumprod(1) * h.prod(1, keepdim=True)"),
    "extremes": (TABLE, "h.amin(1) + h.max() + h.min(1).values"),
    "sorted": (TABLE, "h.sort(1, descending=True).values + h.gather(1, h.argsort(1))"),
    "the largest integer": (TABLE, "h[torch.arange(4), ids.argmax(1)]"),
    "two indices": (DEEP, "h[[0, 1, 1], [2, 5, 5]]"),
    "indices apart": (DEEP, "h[[0, 1, 1], :, [2, 1, -1]]"),
    "entries of rows": (DEEP, "h[torch.arange(4)[:, None], ids[:, :2, 0]]"),
    "added by index": (TABLE, "x.index_add(1, torch.tensor([2, 0, 2]), h[:, :3], alpha=2)"),
    "copied by index": (TABLE, "x.index_copy(1, torch.tensor([2, 0]), h[:, :2])"),
    "sums of what meets": (TABLE, "x.scatter_reduce(1, ids, h, 'sum')"),
    "means of what meets": (
        TABLE,
        "torch.zeros_like(h).scatter_reduce(1, ids, h, 'mean', include_self=False)",
    ),
    "the largest of what meets": (
        TABLE,
        "torch.zeros_like(h).scatter_reduce(1, ids, h, 'amax', include_self=False)",
    ),
    "the smallest by a short index": (
        TABLE,
        "(x * h).scatter_reduce(1, ids[:2, :2], h[1:3, :2], 'amin')",
    ),
    "a number by a short index": (TABLE, "(x * h).scatter(1, ids[:1, :2], 3.0)"),
    "values by a short index": (TABLE, "(x * 2).scatter(1, ids[1:3, :1], h[:2, 1:2])"),
    "sums by a short index": (TABLE, "(x * h).scatter_add(1, ids[:2, :2], h[:2, :2])"),
    "means by a short index": (TABLE, "(x * h).scatter_reduce(1, ids[:2, :2], h[1:3, :2], 'mean')"),
    "read by a short index": (TABLE, "h.gather(1, ids[:2, :1])"),
    "loss of images": (
        "4, 5, 3, 2",
        "F.cross_entropy(h, ids[:, 0].clamp(max=4), label_smoothing=0.1)",
    ),
    "weighed loss": (
        "4, 5, 3, 2",
        "F.cross_entropy(h, ids[:, 0].clamp(max=4), torch.arange(1., 6, dtype=x.dtype), "
        "ignore_index=1)",
    ),
    "losses": (TABLE, "F.smooth_l1_loss(h, x + 1.5) + F.huber_loss(h, x + 1.5)"),
    "logits": (TABLE, "F.binary_cross_entropy_with_logits(h, x.abs())"),
    "activations": (TABLE, "F.elu(h) + F.mish(h) + F.leaky_relu(h) + F.relu6(h) + F.glu(h).sum()"),
    "integers": (TABLE, "h * (ids // 3) + torch.remainder(h, 2.0) + (ids % 3)"),
    "complex rotary": (
        "2, 3, 8",
        "torch.view_as_real(torch.view_as_complex(h.reshape(2, 3, 4, 2)) * torch.polar("
        "torch.ones(3, 4, dtype=x.dtype), torch.arange(12., dtype=x.dtype).view(3, 4)))",
    ),
}
REFUSED = {
    "the product of what meets": (
        "torch.zeros_like(h).scatter_reduce(1, ids, h, 'prod')",
        "a scatter that takes the prod of what meets",
    ),
    "a mask as an index": ("h[x > 0]", "a shape is data-dependent"),
    "written where places may meet": (
        "h.index_put((ids[:, 0],), h)",
        "an index whose entries may meet",
    ),
    "a factor that is not that of the extents": (
        "F.interpolate(h[None], scale_factor=1.3)",
        "an interpolation by",
    ),
    "a number that is drawn": ("h + torch.poisson(h.exp())", "poisson"),
}


def written(tmp_path, shape, layer, result):
    path = tmp_path / "model.py"
    path.write_text(FILE.format(shape=shape, layer=layer, result=result))
    return CaptureRequest(f"{path}:M", dtype="f64")


@pytest.mark.parametrize("name", LAYERS)
def test_layers_agree_with_pytorch(name, tmp_path):
    agrees(written(tmp_path, *LAYERS[name]))


@pytest.mark.parametrize("name", RESULTS)
def test_ops_agree_with_pytorch(name, tmp_path):
    shape, result = RESULTS[name]
    agrees(written(tmp_path, shape, "None", result))


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused_with_its_line(name, tmp_path):
    result, message = REFUSED[name]
    with pytest.raises(CaptureError, match=message) as found:
        capture(written(tmp_path, TABLE, "None", result))
    assert found.value.line == 12


def test_a_batch_norm_is_captured_in_train_mode_with_its_state(tmp_path):
    found = agrees(written(tmp_path, *LAYERS["batch norm"]))
    assert found.facts.train
    state = {"n.running_mean", "n.running_var", "n.num_batches_tracked"}
    assert state <= {o.path for o in found.program.outputs}
    assert state <= {i.name for i in found.program.inputs if i.role == "const"}
