"""What generated models do between their layers, as lines of source.

In every text `V` is the tensor, `N` its last extent, `B` the batch, `T` the sequence, `I` a number
that makes names unique, and `L` a layer of the module whose weight may be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """An operation on `V`, which keeps its shape."""

    name: str
    body: str
    setup: str = ""
    """Lines of the constructor."""
    weight: float = 1
    """How often; low where most programs spell it out."""
    sequence: bool | None = None
    """For tensors [batch, sequence, features] alone (True), for those without one (False)."""
    layer: bool = False
    """Reads the weight of a layer."""

    def lines(self, names: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Of the constructor and of the forward, with the names filled in."""
        fill = re.compile(r"\b[VNBTL]\b|(?<=[a-z])I\b")
        setup, body = (fill.sub(lambda m: names[m[0]], s) for s in (self.setup, self.body))
        return setup.splitlines(), body.splitlines()


PLAIN = (
    # element by element
    Piece("relu", "V = F.relu(V)", weight=2),
    Piece("gelu", "V = F.gelu(V)", weight=2),
    Piece("tanh", "V = torch.tanh(V)"),
    Piece("square", "V = V * V.abs()"),
    Piece("where", "V = torch.where(V > 0, V, 0.1 * V)"),
    Piece("clamp", "V = V.clamp(-1.0, 1.0)"),
    Piece("dropout", "V = self.dropI(V)", "self.dropI = nn.Dropout(0.1)"),
    # parameters and buffers beside the layers
    Piece("gain", "V = V * self.gainI", "self.gainI = nn.Parameter(torch.ones(N))", 3),
    Piece("shift", "V = V + self.shiftI", "self.shiftI = nn.Parameter(torch.zeros(N))", 2),
    Piece("scalar", "V = V * self.scaleI", "self.scaleI = nn.Parameter(torch.tensor(1.0))", 3),
    Piece("scalar_one", "V = V * self.scaleI", "self.scaleI = nn.Parameter(torch.ones(1))"),
    Piece(
        "frozen_gain",
        "V = V * self.fixedI",
        "self.fixedI = nn.Parameter(torch.ones(N), requires_grad=False)",
        2,
    ),
    Piece(
        "buffer_row",
        "V = V * self.tableI",
        'self.register_buffer("tableI", torch.linspace(0.5, 1.5, N))',
        2,
    ),
    Piece(
        "buffer_mask",
        "V = V * self.maskI",
        'self.register_buffer("maskI", (torch.arange(N) % 3 != 0).float())',
    ),
    Piece(
        "buffer_mask_fill",
        "V = V.masked_fill(self.maskI, 0.0)",
        'self.register_buffer("maskI", torch.arange(N) % 4 == 1, persistent=False)',
    ),
    Piece(
        "buffer_examples",
        "V = V * self.tableI",
        'self.register_buffer("tableI", torch.linspace(0.5, 1.5, B).view(B, 1))',
        sequence=False,
    ),
    Piece(
        "buffer_places",
        "V = V + self.placesI",
        'self.register_buffer("placesI", torch.sin(torch.arange(T * N).float()).view(T, N))',
        2,
        sequence=True,
    ),
    Piece(
        "buffer_places_cut",
        "V = V + self.placesI[: V.shape[1]]",
        'self.register_buffer("placesI", torch.sin(torch.arange(2 * T * N).float()).view(-1, N))',
        sequence=True,
    ),
    Piece(
        "parameter_places",
        "V = V + self.placesI",
        "self.placesI = nn.Parameter(torch.zeros(T, N))",
        2,
        sequence=True,
    ),
    Piece("constant_row", "V = V * torch.linspace(0.5, 1.5, N, dtype=V.dtype)"),
)
"""What every rank can do with the part of `V` that it has."""
COUPLING = (
    # numbers that depend on the place, and weights that are read
    Piece("count_row", "V = V + 0.1 * torch.arange(V.shape[-1], dtype=V.dtype)"),
    Piece(
        "count_batch",
        "places = torch.arange(V.shape[0], dtype=V.dtype)\nV = V + 0.1 * places.view(-1, 1)",
        sequence=False,
    ),
    Piece(
        "count_sequence",
        "places = torch.arange(V.shape[1], dtype=V.dtype)\nV = V + 0.1 * places.view(-1, 1)",
        sequence=True,
    ),
    Piece("weight_mean", "V = V + L.weight.mean()", layer=True, weight=2),
    Piece("weight_norm", "V = V / (1 + L.weight.pow(2).sum().sqrt())", layer=True, weight=2),
    Piece("weight_max", "V = V * L.weight.detach().abs().amax()", layer=True, weight=2),
    # softmaxes
    Piece("softmax_last", "V = F.softmax(V, dim=-1)", weight=2),
    Piece("softmax_last_float", "V = V.softmax(-1, dtype=torch.float32).to(V.dtype)"),
    Piece("softmax_module", "V = self.softI(V)", "self.softI = nn.Softmax(dim=-1)"),
    Piece("softmax_batch", "V = F.softmax(V, dim=0)"),
    Piece("softmax_sequence", "V = F.softmax(V, dim=1)", sequence=True, weight=3),
    Piece("log_softmax_last", "V = F.log_softmax(V, dim=-1)"),
    Piece("log_softmax_sequence", "V = torch.log_softmax(V, 1)", sequence=True, weight=2),
    Piece("softmax_groups", "V = V.unflatten(-1, (-1, 4)).softmax(-1).flatten(-2)", weight=2),
    Piece("softmax_groups_literal", "V = V.view(*V.shape[:-1], N // 4, 4).softmax(-1).flatten(-2)"),
    Piece("softmax_across_groups", "V = V.unflatten(-1, (4, -1)).softmax(-2).flatten(-2)"),
    # norms
    Piece("layer_norm", "V = self.normI(V)", "self.normI = nn.LayerNorm(N)", 3),
    Piece(
        "layer_norm_plain",
        "V = self.normI(V)",
        "self.normI = nn.LayerNorm(N, elementwise_affine=False)",
    ),
    Piece("layer_norm_call", "V = F.layer_norm(V, (N,))"),
    Piece("layer_norm_shape", "V = F.layer_norm(V, V.shape[-1:])"),
    Piece("rms_norm", "V = self.normI(V)", "self.normI = nn.RMSNorm(N, eps=1e-6)", 2),
    Piece(
        "rms_norm_by_hand",
        "V = V * torch.rsqrt(V.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gainI",
        "self.gainI = nn.Parameter(torch.ones(N))",
        2,
    ),
    Piece(
        "layer_norm_by_hand",
        "middle = V.mean(dim=-1, keepdim=True)\n"
        "spread = (V - middle).pow(2).mean(dim=-1, keepdim=True)\n"
        "V = (V - middle) / torch.sqrt(spread + 1e-5)",
    ),
    Piece(
        "batch_norm_by_hand",
        "V = V - V.mean(0)\nV = V * torch.rsqrt(V.var(0, unbiased=False) + 1e-5)",
    ),
    Piece("sequence_norm", "V = V - V.mean(1, keepdim=True)", sequence=True, weight=2),
    Piece("normalize", "V = F.normalize(V, dim=-1)", weight=0.3),
    Piece(
        "normalize_by_hand",
        "V = V * torch.rsqrt(V.pow(2).sum(-1, keepdim=True) + 1e-6)",
        weight=2,
    ),
    Piece("group_norm", "V = self.normI(V)", "self.normI = nn.GroupNorm(4, N)", 0.3, False),
    # reductions
    Piece("center_last", "V = V - V.mean(-1, keepdim=True)"),
    Piece("center_batch", "V = V - V.mean(0, keepdim=True)"),
    Piece("center_all", "V = V - V.mean()"),
    Piece("amax_last", "V = V - V.amax(-1, keepdim=True)"),
    Piece("amax_batch", "V = V / (1 + V.abs().amax(0, keepdim=True))"),
    Piece("max_last", "V = V - V.max(dim=-1, keepdim=True).values"),
    Piece("max_sequence", "V = V - V.max(dim=1, keepdim=True).values", sequence=True, weight=2),
    Piece("max_all", "V = V / (1 + V.abs().amax())"),
    Piece("logsumexp_last", "V = V - torch.logsumexp(V, -1, keepdim=True)", weight=0.3),
    Piece("logsumexp_batch", "V = V - torch.logsumexp(V, 0, keepdim=True)", weight=0.3),
    Piece(
        "logsumexp_last_by_hand",
        "V = V - V.exp().sum(-1, keepdim=True).log()",
        weight=2,
    ),
    Piece(
        "logsumexp_batch_by_hand",
        "V = V - V.exp().sum(0, keepdim=True).log()",
        weight=2,
    ),
    Piece("logsumexp_sequence", "V = V - V.exp().sum(1, keepdim=True).log()", sequence=True),
    Piece("gate_by_sum", "V = V * torch.sigmoid(V.sum(-1, keepdim=True))"),
    Piece(
        "gate_by_sequence",
        "V = V * torch.sigmoid(V.mean(1, keepdim=True))",
        sequence=True,
        weight=2,
    ),
    Piece("running_sum", "V = V.cumsum(1)", sequence=True, weight=2),
    # numbers and branches from shapes
    Piece("shape_scale", "V = V * V.shape[-1] ** -0.5"),
    Piece("size_scale", "V = V / math.sqrt(V.size(-1))"),
    Piece("literal_scale", "V = V * N ** -0.5"),
    Piece("shape_batch", "V = V * (V.shape[0] / B)"),
    Piece("shape_sequence", "V = V * (V.size(1) / 4)", sequence=True, weight=2),
    Piece("shape_all", "V = V * (64 / V.numel())"),
    Piece("branch_last", "if V.shape[-1] >= N:\n    V = V * 2"),
    Piece("branch_batch", "V = V * 2 if V.shape[0] == B else V"),
    Piece("branch_batch_both", "V = V * 2 if V.shape[0] > 1 else V"),
    Piece("branch_rank", "if V.dim() == 2:\n    V = V * 0.5"),
    Piece("branch_sequence", "if V.size(1) % 2 == 0:\n    V = V + 1", sequence=True, weight=2),
    # rows and columns that meet
    Piece("roll", "V = V + V.roll(1, 0)", weight=0.3),
    Piece("next_example", "V = V + torch.cat([V[1:], V[:1]])"),
    Piece("next_column", "V = V + torch.cat([V[..., 1:], V[..., :1]], dim=-1)"),
    Piece("next_place", "V = V + torch.cat([V[:, 1:], V[:, :1]], dim=1)", weight=2, sequence=True),
    Piece("flip_batch", "V = V + V.flip(0)"),
    Piece("first_example", "V = V - V[:1]"),
    Piece("first_column", "V = V - V[..., :1]"),
    Piece("batch_attention", "V = torch.softmax(V @ V.t(), dim=-1) @ V", sequence=False),
    Piece(
        "self_attention",
        "V = torch.softmax(V @ V.transpose(1, 2) * 0.1, dim=-1) @ V",
        sequence=True,
    ),
)
"""What looks at rows, columns, extents or weights; right on ranks or not, as they hold `V`."""
