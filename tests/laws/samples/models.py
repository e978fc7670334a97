"""Samples of composites, by the dims of their operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from tests.laws.samples.form import Attrs, Form, Forms, fixed

EXTENTS = {"h": 2, "d": 3, "i": 3, "j": 4, "1": 1, "g": 2, "t": 3, "m": 3, "e": 4, "c": 2, "v": 5}


def _composite(*shapes: str, attrs: Attrs | None = None, more: Sequence[Attrs] = ()) -> Forms:
    """Composites by operand dims, in letters; `ij:i64` is an integer operand."""

    def form(a: int, b: int) -> Iterator[Form]:
        extents = {"a": a, "b": b, **EXTENTS}
        parts = [text.partition(":") for text in shapes]
        yield Form(
            tuple(tuple(extents[c] for c in letters) for letters, _, _ in parts),
            tuple(dtype or "f32" for _, _, dtype in parts),
            fixed(attrs or {}, *more),
        )

    return form


_SCALE = Fraction(1, 2)
_STATE = ("ghi1", "ghi1", "ghid")
_STEP: Attrs = {"lr": Fraction(1, 100)}
MODELS: dict[str, Forms] = {
    "scan": _composite("b", "ib", attrs={"length": 3, "carry": 1, "xs": 1}),
    "mean": _composite("ab", attrs={"dims": (1,), "keepdim": True}),
    "detach": _composite("ij"),
    "softmax": _composite("ij"),
    "softmax_backward": _composite("ij", "ij"),
    "log_softmax": _composite("ij"),
    "log_softmax_backward": _composite("ij", "ij"),
    "layer_norm": _composite("ij", "j", "j", attrs={"eps": Fraction(1, 1000)}),
    "rms_norm": _composite("ij", "j", attrs={"eps": Fraction(1, 1000)}),
    "sdpa": _composite("ahid", "ahjd", "ahjd", attrs={"causal": True, "scale": _SCALE}),
    "attention_step": _composite(
        *_STATE,
        "ghid",
        "ghjd",
        "ghjd",
        attrs={"scale": _SCALE},
        more=[{"scale": _SCALE, "causal": True, "q_offset": 2, "k_offset": 1}],
    ),
    "attention_merge": _composite(*_STATE, *_STATE),
    "attention_end": _composite(*_STATE),
    "logsumexp": _composite("ij", attrs={"keepdim": True}, more=[{}]),
    "cross_entropy": _composite(
        "tv", "t:i64", attrs={"smoothing": Fraction(1, 8)}, more=[{"ignore_index": 2}]
    ),
    "one_hot": _composite("ti:i64", attrs={"size": 4, "offset": 1}),
    "capacity_mask": _composite("gte", attrs={"capacity": 1}),
    "top_k_gate": _composite(
        "gtm",
        "me",
        attrs={"k": 2},
        more=[{"k": 2, "over_chosen": True}, {"k": 1, "renormalize": False}],
    ),
    "moe_routes": _composite("gte", "gte", attrs={"capacity": 2}),
    "moe_dispatch": _composite("gtm", "gtec"),
    "moe_combine": _composite("gecm", "gtec"),
    "expert_ffn": _composite("gecm", "emd", "edm", attrs={"activation": "gelu"}),
    "expert_glu": _composite("gecm", "emd", "emd", "edm"),
    "load_balance_loss": _composite("gte", "gte", attrs={"k": 2}),
    "dropout": _composite("ti", ":i64", attrs={"p": Fraction(1, 4)}),
    "quantize": _composite("ti", "", attrs={"format": "f8e4m3", "ste": True}),
    "dequantize": _composite("ti", ""),
    "abs_max": _composite("ti"),
    "amax_update": _composite("j", ""),
    "delayed_scale": _composite("j", "", attrs={"format": "f8e5m2", "margin": 1}),
    "loss_scale": _composite("ti", ""),
    "sgd_update": _composite(
        "ij",
        "ij",
        "ij",
        attrs={**_STEP, "momentum": Fraction(9, 10), "nesterov": True},
        more=[{**_STEP, "weight_decay": Fraction(1, 10)}],
    ),
    "adamw_update": _composite("ij", "ij", "ij", "ij", "", attrs=_STEP),
    "square_norm": _composite("ij"),
    "clip_by_norm": _composite("ij", "", attrs={"max_norm": Fraction(1)}),
}
