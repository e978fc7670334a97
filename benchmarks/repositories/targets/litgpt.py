"""litgpt, small, with the parts of a Llama."""

from litgpt.config import Config
from litgpt.model import GPT

SIZES = {
    "block_size": 32, "n_layer": 2, "n_head": 4, "n_embd": 64, "padded_vocab_size": 64,
    "n_query_groups": 2, "rotary_percentage": 1.0, "parallel_residual": False, "bias": False,
    "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "intermediate_size": 128,
}  # fmt: skip


def small():
    return GPT(Config(**SIZES))
