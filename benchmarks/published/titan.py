"""torchtitan's Llama 3, and what its trainer applies to it, from the package as it is."""

# pyright: basic

import torch
from torch import nn
from torchtitan.models.llama3.infra.parallelize import apply_fsdp, apply_tp
from torchtitan.models.llama3.model.args import TransformerModelArgs
from torchtitan.models.llama3.model.model import Transformer

ARGS = {"dim": 32, "n_layers": 1, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 64}


class Llama(nn.Module):
    """The model, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Transformer(TransformerModelArgs(**ARGS, max_seq_len=16))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens)


def tensor_parallel(mesh):
    """As its trainer does for tp: sequence-parallel norms, rotary in complex numbers."""
    llama = Llama()
    apply_tp(llama.model, mesh["tp"], loss_parallel=False, enable_float8_tensorwise_tp=False)
    return llama


def split_and_sharded(mesh):
    """tp, and `fully_shard` of each block and of the model over dp."""
    llama = tensor_parallel(mesh)
    apply_fsdp(llama.model, mesh["dp"], torch.float32, torch.float32, pp_enabled=False)
    return llama


def scaled(mesh):
    """A sum over the ranks that is scaled by their number too."""
    llama = tensor_parallel(mesh)
    block = llama.model.layers["0"]
    block.feed_forward.w2.register_forward_hook(lambda _, given, y: y * mesh["tp"].size())
    return llama
