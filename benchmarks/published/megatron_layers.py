"""Megatron core's tensor-parallel layers, its sequence parallelism and its cross entropy, and plain
modules of the same."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu

HIDDEN, INNER, VOCAB = 8, 16, 24


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(HIDDEN, INNER)
        self.down = nn.Linear(INNER, HIDDEN)

    def forward(self, x):
        return self.down(gelu(self.up(x)))


class Language(nn.Module):
    """An embedding and a head, and the loss of every token."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids, labels):
        return self.losses(self.head(self.embed(ids)), labels)

    def losses(self, logits, labels):
        return cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")


def config(size, **more):
    from megatron.core.model_parallel_config import ModelParallelConfig

    return ModelParallelConfig(tensor_model_parallel_size=size, use_cpu_initialization=True, **more)


class SplitBlock(Block):
    def __init__(self, tp_group, sequence_parallel=False):
        from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

        nn.Module.__init__(self)
        self.group = tp_group
        more = {"config": config(tp_group.size(), sequence_parallel=sequence_parallel)}
        more |= {"init_method": nn.init.xavier_normal_, "tp_group": tp_group}
        self.up = ColumnParallelLinear(HIDDEN, INNER, gather_output=False, **more)
        self.down = RowParallelLinear(
            INNER, HIDDEN, bias=True, input_is_parallel=True, skip_bias_add=False, **more
        )

    def forward(self, x):
        return self.down(gelu(self.up(x)[0]))[0]


class SequenceBlock(SplitBlock):
    """Activations between layers are split over rows."""

    def __init__(self, tp_group):
        from megatron.core.parallel_state import _set_global_memory_buffer

        _set_global_memory_buffer()
        super().__init__(tp_group, sequence_parallel=True)


def bias_summed(model):
    """As Megatron's finalize_model_grads does for parameters that see a part of the rows."""
    torch.distributed.all_reduce(model.down.bias.grad, group=model.group)


class SplitLanguage(Language):
    def __init__(self, tp_group):
        from megatron.core import parallel_state
        from megatron.core.tensor_parallel import ColumnParallelLinear, VocabParallelEmbedding

        nn.Module.__init__(self)
        parallel_state._TENSOR_MODEL_PARALLEL_GROUP = tp_group
        more = {"config": config(tp_group.size()), "init_method": nn.init.xavier_normal_}
        more |= {"tp_group": tp_group}
        self.group = tp_group
        self.embed = VocabParallelEmbedding(VOCAB, HIDDEN, **more)
        self.head = ColumnParallelLinear(HIDDEN, VOCAB, bias=False, gather_output=False, **more)

    def losses(self, logits, labels):
        from megatron.core.tensor_parallel import vocab_parallel_cross_entropy

        return vocab_parallel_cross_entropy(logits[0], labels).flatten()


class BiasNotSummed(SequenceBlock):
    """Used without `bias_summed`: a rank's gradient of the bias is of its own rows."""
