"""What is trained, and how it is spread over the ranks. Data only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from shardproof.synthesis.training.step import TrainingError
from shardproof.verifier.kernel.program.types import Mesh, TensorType

CP_KINDS = ("all_gather", "ulysses", "ring", "zigzag")
SCHEDULES = ("gpipe", "1f1b", "zero_bubble")
ZERO_KINDS = ("per_param", "flat")


@dataclass(frozen=True)
class Moe:
    """A mixture of experts in place of the feed-forward blocks."""

    experts: int
    top_k: int
    capacity: int = 0
    """Places per expert and sequence; tokens beyond it are dropped. 0: a place for every token."""
    shared: int = 0
    """Experts that every token visits."""
    aux_weight: Fraction = Fraction(0)
    """Weight of the load-balancing loss of each sequence."""
    ffn: int = 0
    """Inner size of one expert; that of the dense blocks if 0."""
    dense: int = 0
    """Layers at the start that keep a dense block."""
    scores: str = "softmax"
    """`softmax` or `sigmoid` (DeepSeek-V3, 2024)."""
    renormalize: bool = True
    """The gates of the chosen experts sum to 1."""
    scale: Fraction = Fraction(1)
    """Factor of the gates."""
    groups: int = 1
    """Experts are chosen among those of the best groups alone (DeepSeek-V2, 2024)."""
    top_groups: int = 1


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention (DeepSeek-V2, 2024): keys and values from a narrow latent."""

    kv_rank: int
    """Size of the latent of keys and values."""
    nope: int
    """Dims of a head without positions."""
    rope: int
    """Dims of a head with rotary positions; their keys are one for all heads."""
    value: int
    """Dims of a value."""
    q_rank: int = 0
    """Size of the latent of queries; none if 0."""


@dataclass(frozen=True)
class Model:
    """A decoder of the Llama or DeepSeek family: RMS norm, rotary positions, SwiGLU.

    Queries are grouped, or attention is latent (then `kv_heads` and `head_dim` are not used).
    """

    layers: int = 2
    hidden: int = 12
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 4
    ffn: int = 20
    vocab: int = 28
    seq: int = 4
    batch: int = 4
    """Sequences of the whole step, over all micro-batches and replicas."""
    tied: bool = False
    """The head is the embedding table."""
    eps: Fraction = Fraction(1, 100_000)
    moe: Moe | None = None
    compute: str = ""
    """The format to which parameters are rounded where they are used; none if empty."""
    mla: Mla | None = None

    @property
    def score_dim(self) -> int:
        """Dims of a query and a key."""
        return self.mla.nope + self.mla.rope if self.mla else self.head_dim

    @property
    def rope_dim(self) -> int:
        """Dims that are rotated."""
        return self.mla.rope if self.mla else self.head_dim

    @property
    def expert_ffn(self) -> int:
        """Inner size of one expert."""
        return (self.moe.ffn if self.moe else 0) or self.ffn

    def is_dense(self, layer: int) -> bool:
        """Whether a layer has one feed-forward block instead of experts."""
        return self.moe is None or layer < self.moe.dense

    @property
    def balance_weight(self) -> Fraction:
        """The factor of the load-balancing loss that makes it a mean over all sequences.

        Experts times the share of tokens routed to each times its mean probability.
        """
        if self.moe is None:
            return Fraction(0)
        tokens = self.moe.top_k * self.seq**2 * self.batch
        return self.moe.aux_weight * Fraction(self.moe.experts, tokens)

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        h, m = self.hidden, self.mla
        if m is None:
            attention = 2 * h * self.head_dim * (self.heads + self.kv_heads)
        else:
            attention = h * (m.kv_rank + m.rope) + m.kv_rank * (1 + self.heads * (m.nope + m.value))
            attention += (h + 1) * m.q_rank + self.heads * h * m.value
            attention += (m.q_rank or h) * self.heads * self.score_dim
        feed = self.layers * 3 * h * self.ffn
        if self.moe is not None:
            sparse = 3 * h * self.expert_ffn * (self.moe.experts + self.moe.shared)
            sparse += h * self.moe.experts
            feed = self.moe.dense * 3 * h * self.ffn + (self.layers - self.moe.dense) * sparse
        tables = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers * (attention + 2 * h) + feed + tables + h


@dataclass(frozen=True)
class Degrees:
    """Sizes of the mesh dims and the choices that go with them."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    micro_batches: int = 1
    zero: int = 0
    """0: nothing, 1: optimizer state, 2: and gradients, 3: and parameters are split over dp."""
    zero_kind: str = "per_param"
    """`per_param`: along the first dim of each parameter; `flat`: padded buckets."""
    sequence_parallel: bool = False
    cp_kind: str = "all_gather"
    schedule: str = "1f1b"
    scan_layers: bool = False
    """Layers are one repeated block over stacked parameters."""
    scan_micro_batches: bool = False

    @property
    def mesh(self) -> Mesh:
        """The mesh dims larger than 1, outermost first, as torchtitan orders them."""
        sizes = (
            ("pp", self.pp),
            ("dp", self.dp),
            ("cp", self.cp),
            ("ep", self.ep),
            ("tp", self.tp),
        )
        return Mesh(tuple((name, size) for name, size in sizes if size > 1))

    @property
    def tables(self) -> tuple[str, ...]:
        """Constant inputs by position. Zigzag reorders tokens, so their positions are given."""
        return ("cos", "sin", "positions") if self.cp_kind == "zigzag" else ("cos", "sin")

    @property
    def data(self) -> tuple[str, ...]:
        """Mesh dims over which tokens are split and gradients summed."""
        sizes = (("dp", self.dp), ("cp", self.cp), ("ep", self.ep))
        return tuple(name for name, size in sizes if size > 1)

    @property
    def data_size(self) -> int:
        return self.dp * self.cp * self.ep

    def size(self, name: str) -> int:
        """Extent of a mesh dim, 1 where it is not used."""
        return dict(self.mesh.dims).get(name, 1)


def check(model: Model, degrees: Degrees) -> None:
    """Raise TrainingError unless the degrees fit the model."""

    def divides(extent: int, what: str, by: int, why: str) -> None:
        if extent % by:
            raise TrainingError(
                f"{what} = {extent} does not divide by {why} = {by}; "
                f"try a multiple of {by} or a divisor of {extent}"
            )

    sizes = (degrees.dp, degrees.tp, degrees.pp, degrees.cp, degrees.ep, degrees.micro_batches)
    if min(sizes) < 1:
        raise TrainingError("a degree is below 1; expected 1 or more")
    for value, allowed, what in (
        (degrees.cp_kind, CP_KINDS, "cp_kind"),
        (degrees.schedule, SCHEDULES, "schedule"),
        (degrees.zero_kind, ZERO_KINDS, "zero_kind"),
        (degrees.zero, (0, 1, 2, 3), "zero"),
    ):
        if value not in allowed:
            raise TrainingError(
                f"{what} = {value!r}; expected one of {', '.join(map(str, allowed))}"
            )
    m, tp, cp = model, degrees.tp, degrees.cp
    for extent, what in ((m.heads, "heads"), (m.ffn, "ffn"), (m.vocab, "vocab")):
        divides(extent, what, tp, "tp")
    if m.mla is None:
        divides(m.heads, "heads", m.kv_heads, "kv_heads")
        divides(m.kv_heads, "kv_heads", tp, "tp")
    if m.layers < degrees.pp:
        raise TrainingError(f"{m.layers} layers on pp = {degrees.pp} stages; lower pp")
    divides(m.rope_dim, "rotary dims", 2, "two rotary halves")
    spread = degrees.micro_batches * degrees.dp * degrees.ep
    divides(m.batch, "batch", spread, "micro_batches * dp * ep")
    split = cp * (tp if degrees.sequence_parallel else 1)
    divides(m.seq, "seq", split, "the ranks that share a sequence")
    if cp > 1 and degrees.cp_kind == "ulysses":
        divides(m.heads, "heads", tp * cp, "tp * cp")
    if cp == 1 and degrees.cp_kind != "all_gather":
        raise TrainingError(f"cp_kind = {degrees.cp_kind} with cp = 1; set cp to 2 or more")
    if degrees.sequence_parallel and tp == 1:
        raise TrainingError("sequence_parallel without tp; set tp to 2 or more")
    if degrees.zero and degrees.data_size == 1:
        raise TrainingError(f"zero = {degrees.zero} with one data rank; set dp to 2 or more")
    if m.moe is not None:
        divides(m.moe.experts, "experts", degrees.ep, "ep")
        divides(m.expert_ffn, "the ffn of an expert", tp, "tp")
        if cp > 1 or degrees.sequence_parallel:
            raise TrainingError("experts route whole sequences; set cp to 1, sequence_parallel off")
        if m.moe.top_k > m.moe.experts:
            raise TrainingError(f"top_k = {m.moe.top_k} of {m.moe.experts} experts; lower top_k")
    elif degrees.ep > 1:
        raise TrainingError("ep without experts; choose a model with moe, or set ep to 1")
    if degrees.zero == 3 and degrees.zero_kind == "flat":
        raise TrainingError("zero = 3 splits each parameter; flat buckets are for zero 1 and 2")


TINY = Model()
TINY_V2 = Moe(6, 2, shared=2, aux_weight=Fraction(1, 10), ffn=6, dense=1, renormalize=False)
DEEPSEEK = Model(
    heads=128,
    vocab=102400,
    seq=8192,
    batch=256,
    eps=Fraction(1, 10**6),
    mla=Mla(kv_rank=512, nope=128, rope=64, value=128, q_rank=1536),
)
DEEPSEEK_V2 = Moe(160, 6, shared=2, aux_weight=Fraction(1, 1000), ffn=1536, dense=1,
                  renormalize=False, scale=Fraction(16), groups=8, top_groups=3)  # fmt: skip
DEEPSEEK_V3 = Moe(256, 8, shared=1, aux_weight=Fraction(1, 10**4), ffn=2048, dense=3,
                  scores="sigmoid", scale=Fraction(5, 2), groups=8, top_groups=4)  # fmt: skip
MODELS: dict[str, Model] = {
    "tiny": TINY,
    "tiny-tied": replace(TINY, tied=True),
    "tiny-bf16": replace(TINY, compute="bf16"),
    "tiny-moe": replace(TINY, moe=Moe(experts=4, top_k=2, capacity=3)),
    "tiny-moe-balanced": replace(
        TINY, moe=Moe(experts=4, top_k=2, capacity=3, aux_weight=Fraction(1, 10))
    ),
    "tiny-moe-shared": replace(TINY, moe=Moe(experts=4, top_k=2, capacity=3, shared=1)),
    "tiny-deepseek-v2": replace(
        TINY,
        layers=3,
        mla=Mla(kv_rank=8, nope=4, rope=2, value=3),
        moe=replace(TINY_V2, groups=3, top_groups=2),
    ),
    "tiny-deepseek-v3": replace(
        TINY,
        layers=3,
        mla=Mla(kv_rank=8, nope=4, rope=2, value=3, q_rank=8),
        moe=replace(
            TINY_V2,
            scores="sigmoid",
            renormalize=True,
            scale=Fraction(5, 2),
            groups=2,
            top_groups=1,
        ),
    ),
    "mixtral-8x7b": Model(
        32,
        4096,
        32,
        8,
        128,
        14336,
        32000,
        4096,
        1024,
        moe=Moe(8, 2, 1280, aux_weight=Fraction(1, 50)),
    ),
    "llama3-8b": Model(32, 4096, 32, 8, 128, 14336, 128256, 8192, 1024),
    "llama3-70b": Model(80, 8192, 64, 8, 128, 28672, 128256, 8192, 1024),
    "llama3-405b": Model(126, 16384, 128, 8, 128, 53248, 128256, 8192, 2048),
    "deepseek-16b": replace(
        DEEPSEEK,
        layers=27,
        hidden=2048,
        heads=16,
        ffn=10944,
        mla=Mla(kv_rank=512, nope=128, rope=64, value=128),
        moe=replace(DEEPSEEK_V2, experts=64, ffn=1408, scale=Fraction(1), groups=1, top_groups=1),
    ),
    "deepseek-236b": replace(DEEPSEEK, layers=60, hidden=5120, ffn=12288, moe=DEEPSEEK_V2),
    "deepseek-671b": replace(
        DEEPSEEK, layers=61, hidden=7168, ffn=18432, vocab=129280, batch=512, moe=DEEPSEEK_V3
    ),
}
"""By name. Llama 3 as in Dubey et al. 2024, table 3; Mixtral as in Jiang et al. 2024; DeepSeek
as in the published configurations of V2-Lite, V2 (2024) and V3 (2024), without the bias by which
V3 moves load between experts, which no gradient reaches."""


def tokens(model: Model, degrees: Degrees) -> int:
    """Tokens of one micro-batch on one rank."""
    return math.prod(local_batch(model, degrees))


def local_batch(model: Model, degrees: Degrees) -> tuple[int, int]:
    """Sequences and positions of one micro-batch on one rank."""
    spread = degrees.micro_batches * degrees.dp * degrees.ep
    return model.batch // spread, model.seq // degrees.cp


def table_type(name: str, length: int, model: Model) -> TensorType:
    """The type of a constant input by position, for so many positions."""
    if name == "positions":
        return TensorType((length,), "i64")
    return TensorType((length, model.rope_dim))
