"""The shape of a model for its price: from the fields of a config, or from a captured program."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shardproof.synthesis.price.model import Model, read_model
from shardproof.synthesis.price.reading import PriceError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType

FIELDS: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
    "vocab": ("vocab_size",),
    "seq": ("max_position_embeddings", "n_positions", "max_seq_len"),
    "head_dim": ("head_dim",),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts"),
    "experts_active": ("num_experts_per_tok",),
    "moe_ffn": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
}
"""Entries of a shape by the names that configs give them."""
NEEDED = ("layers", "hidden", "heads", "vocab")
OTHER = (
    "num_encoder_layers", "encoder_layers", "decoder_layers", "num_decoder_layers", "state_size",
    "ssm_cfg", "mamba_d_state", "linear_num_value_heads", "image_size", "vision_config",
)  # fmt: skip
"""Fields of models that are no decoders of one kind of block: these have no closed form."""
PLAIN = re.compile(
    r"(GPT|Gpt(?!Oss)|OPT|Bloom|Mpt|Falcon|Phi(?!3|moe)|Starcoder2|Bert|Roberta|Electra|Nemotron"
    r"|Persimmon|XGLM|BioGpt|CodeGen|Xlm)"
)
"""Classes whose feed-forward block has two products, not three."""
TIED = re.compile(r"(GPT2|GPTBig|OPT|Bloom|Mpt|Falcon|Gemma|Cohere|Bert|Roberta|XGLM)")
"""Classes whose head is the embedding where the config does not say."""


class ShapeError(PriceError):
    """No shape: what is missing."""


CAPTURED = "captured program"
"""Where a shape comes from that no config states."""


@dataclass(frozen=True)
class Shape:
    """A model's shape, and what is said of its tokens."""

    model: Model
    dtype: str = ""
    """What the config says its numbers are; empty where it does not."""
    source: str = "config"


class Fact(Protocol):
    """A module: its integer attributes, such as `in_features`."""

    @property
    def ints(self) -> Mapping[str, int]: ...


def of_config(fields: Mapping[str, Any], name: str) -> Shape:
    """The shape that a config of class `name` describes.

    Raises:
        ShapeError: an entry is missing, or the model is no decoder of one kind of block.
    """
    for key in OTHER:
        if fields.get(key):
            raise ShapeError(f"a model with {key} has no closed form of its price")
    table: dict[str, Any] = {}
    for entry, names in FIELDS.items():
        found = next((fields[n] for n in names if fields.get(n) is not None), None)
        if found is not None:
            table[entry] = found
    missing = [FIELDS[entry][0] for entry in NEEDED if entry not in table]
    if missing:
        raise ShapeError(f"the config states no {', '.join(missing)}")
    plain = PLAIN.match(name) is not None
    if fields.get("multi_query"):
        table.setdefault("kv_heads", 1)
    if plain:
        table.setdefault("ffn", 4 * table["hidden"])
    table["mlp"] = "gelu" if plain else "swiglu"
    tied = fields.get("tie_word_embeddings")
    table["tied_embeddings"] = bool(tied) if tied is not None else bool(TIED.match(name))
    if fields.get("kv_lora_rank"):
        table |= {"attention": "mla", "kv_heads": table["heads"]}
        table.pop("head_dim", None)
    dtype = str(fields.get("dtype") or fields.get("torch_dtype") or "").removeprefix("torch.")
    return Shape(read_model(table), dtype)


def of_program(
    program: Program,
    params: Mapping[str, TensorType],
    modules: Mapping[str, Fact],
    tokens: Sequence[int],
) -> Shape:
    """The shape of a captured decoder: its repeated block and the products in it. `tokens` is the
    shape of its token ids, batch and sequence.

    Raises:
        ShapeError: it has no repeated block, or products that are not those of a decoder.
    """
    if len(tokens) != 2:
        raise ShapeError("it takes no token ids of batch x sequence")
    prefix, layers = _block(params)
    tables = [m.ints for m in modules.values() if "num_embeddings" in m.ints]
    if not tables:
        raise ShapeError("it has no embedding")
    largest = max(tables, key=lambda ints: ints["num_embeddings"])
    vocab, hidden = largest["num_embeddings"], largest["embedding_dim"]
    heads, width = _heads(program, tokens[1], hidden)
    head = f"{prefix}.{layers - 1}."
    products = [
        (m.ints["in_features"], m.ints["out_features"])
        for path, m in modules.items()
        if path.startswith(head) and {"in_features", "out_features"} <= m.ints.keys()
    ]
    kv_heads, ffn, gated = _widths(products, hidden, heads, width)
    outside = [t for path, t in params.items() if not path.startswith(prefix + ".")]
    table = {
        "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "ffn": ffn,
        "vocab": vocab, "seq": tokens[1], "head_dim": width, "mlp": "swiglu" if gated else "gelu",
        "tied_embeddings": sum(t.shape == (vocab, hidden) for t in outside) < 2,
    }  # fmt: skip
    shape = Shape(read_model(table), source=CAPTURED)
    off = mismatch(shape.model, sum(t.size for t in params.values()))
    if off:
        raise ShapeError(off)
    return shape


def mismatch(model: Model, parameters: int) -> str:
    """What is wrong where a shape accounts for other than nearly all parameters; else empty."""
    if 0.9 < model.parameters / max(parameters, 1) < 1.1:
        return ""
    return f"the shape accounts for {model.parameters:,.0f} of {parameters:,} parameters"


def _block(params: Iterable[str]) -> tuple[str, int]:
    """The list of blocks that holds most parameters, and how many there are."""
    found = (re.match(r"(.+?)\.(\d+)\.", path) for path in params)
    seen = [(m[1], int(m[2])) for m in found if m]
    if not seen:
        raise ShapeError("it has no repeated block")
    prefix = Counter(name for name, _ in seen).most_common(1)[0][0]
    return prefix, 1 + max(at for name, at in seen if name == prefix)


def _heads(program: Program, seq: int, hidden: int) -> tuple[int, int]:
    """Heads, from the scores of attention, and the width of one."""
    shapes = [scope.types[o].shape for scope, node in program.walk() for o in node.outputs]
    scores = Counter(s[1] for s in shapes if len(s) == 4 and s[2:] == (seq, seq))
    for heads, _ in scores.most_common():
        widths = Counter(s[3] for s in shapes if len(s) == 4 and s[1:3] == (heads, seq))
        for width in (hidden // heads, *(w for w, _ in widths.most_common())):
            if widths[width]:
                return heads, width
    raise ShapeError("no scores of attention were found")


def _widths(
    products: Sequence[tuple[int, int]], hidden: int, heads: int, width: int
) -> tuple[int, int, bool]:
    """Key heads, inner width, and whether there is a gate, from the products of one block."""
    left, closing = list(products), (heads * width, hidden)
    if closing in left:
        left.remove(closing)
    inner = {i for i, o in left if o == hidden and i != hidden} or {
        i for i, o in left if o == hidden
    }
    if len(inner) != 1 or len(left) == len(products):
        raise ShapeError("its blocks are not one attention and one feed-forward block")
    (ffn,) = inner
    if (ffn, hidden) in left:
        left.remove((ffn, hidden))
    out = [o for i, o in left if i == hidden]
    gates = (True, False) if out.count(ffn) > 1 or 2 * ffn in out else (False, True)
    for gated in gates:
        rest = sum(out) - ffn * (2 if gated else 1) - heads * width
        kv_heads, odd = divmod(rest, 2 * width)
        if not odd and kv_heads > 0 and heads % kv_heads == 0:
            return kv_heads, ffn, gated
    raise ShapeError("its queries, keys and values are not products of a decoder")
