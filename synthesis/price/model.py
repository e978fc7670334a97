"""Shapes of transformers, and how many parameters each part has."""

from dataclasses import dataclass, replace
from functools import cached_property

from shardproof.synthesis.price.reading import PriceError, Table, number, whole, words

VOCAB = 51200
"""Assumed where a shape states no vocabulary: GPT-2's, padded."""
MLA = (128, 64, 512, 1536)
"""Multi-head latent attention: width of a head, of its rotary part, rank of keys and values, and
of queries where `hidden` exceeds 4096 (DeepSeek-V2 and V3, arXiv 2405.04434 and 2412.19437)."""


@dataclass(frozen=True)
class Model:
    """One transformer. Widths in elements, `seq` in tokens."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int
    gated: bool
    tied: bool
    head_dim: int
    experts: int = 0
    top_k: int = 0
    moe_ffn: int = 0
    shared: int = 0
    dense_layers: int = 0
    latent: bool = False
    assumed: tuple[str, ...] = ()
    """What the description left out and was assumed."""

    @cached_property
    def queries(self) -> int:
        """Width of all query heads that the core of attention sees."""
        return self.heads * (self.head_dim + (MLA[1] if self.latent else 0))

    @cached_property
    def keys(self) -> int:
        """Width of all key heads; values are as wide but for a rotary part."""
        return self.kv_heads * (self.head_dim + (MLA[1] if self.latent else 0))

    @cached_property
    def matrices(self) -> tuple[tuple[int, int, str], ...]:
        """Weight matrices of attention: rows, columns and which side tensor parallelism splits."""
        h, width = self.hidden, self.heads * self.head_dim
        if not self.latent:
            return (h, width + 2 * self.keys, "out"), (width, h, "in")
        rank = MLA[3] if h > 4096 else 0
        into = ((h, rank, ""), (rank, self.queries, "out")) if rank else ((h, self.queries, "out"),)
        up = (MLA[2], self.kv_heads * 2 * self.head_dim, "out")
        return *into, (h, MLA[2] + MLA[1], ""), up, (width, h, "in")

    @cached_property
    def attention(self) -> int:
        """Parameters of one attention block."""
        return sum(rows * columns for rows, columns, _ in self.matrices)

    def mlp(self, width: int) -> int:
        """Parameters of one feed-forward block of inner `width`."""
        return (3 if self.gated else 2) * self.hidden * width

    @cached_property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @cached_property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts of one layer."""
        return self.experts * self.mlp(self.moe_ffn)

    @cached_property
    def layer_parameters(self) -> float:
        """Parameters of a mean layer without routed experts: what tensor parallelism splits."""
        inner = self.ffn * (self.layers - self.moe_layers)
        inner += self.shared * self.moe_ffn * self.moe_layers
        return self.attention + self.mlp(inner) / self.layers

    @cached_property
    def parameters(self) -> float:
        embed = self.vocab * self.hidden * (1 if self.tied else 2)
        experts = self.expert_parameters * self.moe_layers
        return self.layer_parameters * self.layers + experts + embed

    @cached_property
    def active(self) -> float:
        """Parameters in the matrix products that one token passes through, head included."""
        experts = self.top_k * self.mlp(self.moe_ffn) * self.moe_layers
        return self.layer_parameters * self.layers + experts + self.vocab * self.hidden

    def flops(self, seq: int) -> float:
        """Model operations for one token, forward and backward; causal scores count half."""
        scores = 3 * 2 * self.layers * seq * (self.queries + self.heads * self.head_dim) / 2
        return 6 * self.active + scores


def read_model(table: Table, layers: int | None = None) -> Model:
    """A shape from its description; `layers` replaces the number that it states.

    Raises:
        PriceError: a width is missing and does not follow from the rest.
    """
    assumed: list[str] = []
    table = {**table, **({"layers": layers} if layers else {})}
    if whole(table, "hidden") is None:
        table = _by_size(table, assumed)
    h, heads = _need(table, "hidden"), whole(table, "heads")
    if heads is None:
        heads = max(h // 128, 1)
        assumed.append(f"heads {heads}")
    kv_heads = whole(table, "kv_heads") or heads
    experts = whole(table, "experts") or 0
    gated = not words(table, "mlp").startswith(("gelu", "relu"))
    moe_ffn = whole(table, "moe_ffn") or (whole(table, "ffn") if experts else 0) or 0
    ffn = whole(table, "ffn") or (moe_ffn if experts else 0)
    if not ffn:
        ffn = -(-8 * h // 3) if gated else 4 * h
        assumed.append(f"ffn {ffn}")
    vocab = whole(table, "vocab")
    if vocab is None:
        vocab = VOCAB
        assumed.append(f"vocab {vocab}")
    if heads % kv_heads:
        raise PriceError(f"heads {heads} is not divisible by kv_heads {kv_heads}")
    latent = words(table, "attention") == "mla"
    if not latent and not whole(table, "head_dim") and h % heads:
        raise PriceError(f"hidden {h} is not divisible by heads {heads}; state head_dim")
    model = Model(
        layers=whole(table, "layers") or 1,
        hidden=h,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        vocab=vocab,
        seq=whole(table, "seq") or 0,
        gated=gated,
        tied=table.get("tied_embeddings") is True,
        head_dim=whole(table, "head_dim") or (MLA[0] if latent else h // heads),
        experts=experts,
        top_k=_top_k(table) if experts else 0,
        moe_ffn=moe_ffn,
        shared=whole(table, "shared_experts") or 0,
        dense_layers=whole(table, "dense_layers") or 0,
        latent=latent,
    )
    if whole(table, "layers") is None:
        model = _by_depth(model, table, assumed)
    return replace(model, assumed=tuple(assumed))


def _top_k(table: Table) -> int:
    found = whole(table, "experts_active") or whole(table, "top_k")
    if found is None:
        raise PriceError("experts_active is missing: how many experts a token is sent to")
    return found


def _need(table: Table, key: str) -> int:
    found = whole(table, key)
    if found is None:
        raise PriceError(f"{key} of the model is missing")
    return found


def _by_size(table: Table, assumed: list[str]) -> Table:
    """Widths of a dense model of a given size: `hidden` is 128 x layers, 12 hidden^2 a layer."""
    billions = number(table, "params_b")
    if billions is None:
        raise PriceError("hidden of the model is missing, and params_b too")
    hidden = max(128 * round((billions * 1e9 / 12 * 128) ** (1 / 3) / 128), 128)
    assumed.append(f"hidden {hidden} and layers from params_b")
    return {**table, "hidden": hidden}


def _by_depth(model: Model, table: Table, assumed: list[str]) -> Model:
    """As many layers as the number of parameters leaves room for."""
    billions = number(table, "params_b")
    if billions is None:
        raise PriceError("layers of the model is missing, and params_b too")
    embed = model.vocab * model.hidden * (1 if model.tied else 2)
    layers = max(round((billions * 1e9 - embed) / (model.parameters - embed)), 1)
    assumed.append(f"layers {layers}")
    return replace(model, layers=layers)
