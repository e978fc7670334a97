"""The plan of a tiny Llama on dp = 2, tp = 2 with sequence parallel, as a run would report it."""

from __future__ import annotations

import math

from shardproof.agent.report.model import ModuleRow, Parameter
from shardproof.synthesis.planner.plan import CollectiveUse
from shardproof.verifier.kernel.program.types import Source

FILE = "transformers/models/llama/modeling_llama.py"
HIDDEN, FFN, VOCAB, LAYERS, KV = 64, 176, 512, 4, 32
BLOCK = "model.layers.*."

HEADS = "Splits the heads, 4 of 8 on each rank; its input is gathered once for q, k and v."
SEQUENCE = "Works on its slice of the sequence; its weight is replicated over tp."
UNITS = "Splits the hidden units; each rank computes its own."
SCATTER = "the pending sum is scattered by sequence."

# module | class | style | activation in, out | weight | placement on tp | line | source | reason
MODULES = f"""
model.embed_tokens|Embedding|vocab|R S(1)|{VOCAB} {HIDDEN}|Shard(0)|388|inputs_embeds = \
self.embed_tokens(input_ids)|Each rank looks up its rows of the vocabulary; {SCATTER}
{BLOCK}input_layernorm|LlamaRMSNorm|sequence|S(1) S(1)|{HIDDEN}|Replicate|318|\
hidden_states = self.input_layernorm(hidden_states)|{SEQUENCE}
{BLOCK}self_attn.q_proj|Linear|column|R S(-1)|{HIDDEN} {HIDDEN}|Shard(0)|254|\
query_states = self.q_proj(hidden_states)|{HEADS}
{BLOCK}self_attn.k_proj|Linear|column|R S(-1)|{KV} {HIDDEN}|Shard(0)|255|\
key_states = self.k_proj(hidden_states)|{HEADS}
{BLOCK}self_attn.v_proj|Linear|column|R S(-1)|{KV} {HIDDEN}|Shard(0)|256|\
value_states = self.v_proj(hidden_states)|{HEADS}
{BLOCK}self_attn.o_proj|Linear|row|S(-1) S(1)|{HIDDEN} {HIDDEN}|Shard(1)|281|\
attn_output = self.o_proj(attn_output)|Contracts the split heads; {SCATTER}
{BLOCK}post_attention_layernorm|LlamaRMSNorm|sequence|S(1) S(1)|{HIDDEN}|Replicate|333|\
hidden_states = self.post_attention_layernorm(hidden_states)|{SEQUENCE}
{BLOCK}mlp.gate_proj|Linear|column|R S(-1)|{FFN} {HIDDEN}|Shard(0)|187|self.gate_proj(x)|{UNITS}
{BLOCK}mlp.up_proj|Linear|column|R S(-1)|{FFN} {HIDDEN}|Shard(0)|187|self.up_proj(x)|{UNITS}
{BLOCK}mlp.down_proj|Linear|row|S(-1) S(1)|{HIDDEN} {FFN}|Shard(1)|187|\
down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))|\
Contracts the split hidden units; {SCATTER}
model.norm|LlamaRMSNorm|sequence|S(1) S(1)|{HIDDEN}|Replicate|416|\
hidden_states = self.norm(hidden_states)|{SEQUENCE}
lm_head|Linear|vocab column|R S(-1)|{VOCAB} {HIDDEN}|Shard(0)|476|\
logits = self.lm_head(hidden_states)|Splits the vocabulary; the loss is computed on split logits.
"""

PENDING = "Closes the pending sum and splits by sequence in one step."
DUAL = "Dual of the forward collective."
WHOLE = 2 * 32 * HIDDEN * 4
WEIGHTS = 4 * (2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN + 3 * HIDDEN * FFN) // 2

# operation | mesh dim | pass | module | times | bytes | reason
COLLECTIVES = f"""
reduce_scatter|tp|forward|model.embed_tokens|1|{WHOLE}|{PENDING}
all_gather|tp|forward|{BLOCK}self_attn|{LAYERS}|{WHOLE}|One gather serves q, k and v.
reduce_scatter|tp|forward|{BLOCK}self_attn.o_proj|{LAYERS}|{WHOLE}|{PENDING}
all_gather|tp|forward|{BLOCK}mlp|{LAYERS}|{WHOLE}|gate and up need the whole sequence.
reduce_scatter|tp|forward|{BLOCK}mlp.down_proj|{LAYERS}|{WHOLE}|{PENDING}
all_gather|tp|forward|lm_head|1|{WHOLE}|The logits need every position.
all_reduce|tp|forward|lm_head|2|512|Largest logit and sum of exponentials of each row.
reduce_scatter|tp|backward|lm_head|1|{WHOLE}|{DUAL}
all_gather|tp|backward|{BLOCK}mlp.down_proj|{LAYERS}|{WHOLE}|{DUAL}
reduce_scatter|tp|backward|{BLOCK}mlp|{LAYERS}|{WHOLE}|{DUAL}
all_gather|tp|backward|{BLOCK}self_attn.o_proj|{LAYERS}|{WHOLE}|{DUAL}
reduce_scatter|tp|backward|{BLOCK}self_attn|{LAYERS}|{WHOLE}|{DUAL}
all_gather|tp|backward|model.embed_tokens|1|{WHOLE}|{DUAL}
all_gather|dp|forward|model.layers.*|{LAYERS}|{WEIGHTS}|fsdp gathers the block.
reduce_scatter|dp|backward|model.layers.*|{LAYERS}|{WEIGHTS}|fsdp sums the gradients.
all_reduce|tp|backward|model.layers.*|{LAYERS}|{8 * HIDDEN}|Norm weights see a slice each.
all_gather|dp|forward|model|1|{4 * VOCAB * HIDDEN}|fsdp gathers embedding, norm and head.
reduce_scatter|dp|backward|model|1|{4 * VOCAB * HIDDEN}|fsdp sums their gradients.
"""


def modules() -> tuple[ModuleRow, ...]:
    return tuple(_module(line) for line in MODULES.strip().split("\n"))


def _module(line: str) -> ModuleRow:
    path, kind, style, activation, extents, tp, number, text, reason = line.split("|")
    shape = tuple(int(n) for n in extents.split())
    whole = 4 * math.prod(shape) * (LAYERS if "*" in path else 1)
    came, goes = activation.split()
    return ModuleRow(
        path=path,
        kind=kind,
        style=style,
        input=came,
        output=goes,
        parameters=(Parameter("weight", shape, {"dp": "Shard(0)", "tp": tp}, "f32"),),
        bytes=whole,
        local_bytes=whole // (2 if tp == "Replicate" else 4),
        source=Source(FILE, int(number), text=text),
        reason=reason,
    )


def collectives() -> tuple[CollectiveUse, ...]:
    return tuple(_collective(line) for line in COLLECTIVES.strip().split("\n"))


def _collective(line: str) -> CollectiveUse:
    op, mesh_dim, phase, where, count, size, reason = line.split("|")
    return CollectiveUse(
        op=op,
        mesh_dim=mesh_dim,
        phase=phase,
        where=where,
        count=int(count),
        bytes=int(size),
        reason=reason,
    )
