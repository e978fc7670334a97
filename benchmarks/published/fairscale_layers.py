"""fairscale's tensor-parallel layers and its cross entropy, and plain modules of the same."""

from torch import nn
from torch.nn.functional import cross_entropy, gelu

HIDDEN, INNER, VOCAB = 8, 16, 24


class Block(nn.Module):
    """An embedding and a block of two layers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.up = nn.Linear(HIDDEN, INNER)
        self.down = nn.Linear(INNER, HIDDEN)

    def forward(self, ids):
        return self.down(gelu(self.up(self.embed(ids))))


class Language(nn.Module):
    """A head, and the loss of every token."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, x, labels):
        return self.losses(self.head(x), labels)

    def losses(self, logits, labels):
        return cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")


class SplitBlock(Block):
    def __init__(self, tp_size):
        from fairscale.nn.model_parallel import initialize_model_parallel
        from fairscale.nn.model_parallel.layers import (
            ColumnParallelLinear,
            RowParallelLinear,
            VocabParallelEmbedding,
        )

        nn.Module.__init__(self)
        initialize_model_parallel(tp_size)
        self.embed = VocabParallelEmbedding(VOCAB, HIDDEN)
        self.up = ColumnParallelLinear(HIDDEN, INNER, gather_output=False)
        self.down = RowParallelLinear(INNER, HIDDEN, input_is_parallel=True)


class BiasInTheSum(SplitBlock):
    """The bias of the second layer is added on every rank, before the sum."""

    def forward(self, ids):
        from fairscale.nn.model_parallel.mappings import reduce_from_model_parallel_region

        h = gelu(self.up(self.embed(ids)))
        y = nn.functional.linear(h, self.down.weight, self.down.bias)
        return reduce_from_model_parallel_region(y)


class SplitLanguage(Language):
    def __init__(self, tp_size):
        from fairscale.nn.model_parallel import initialize_model_parallel
        from fairscale.nn.model_parallel.layers import ColumnParallelLinear

        nn.Module.__init__(self)
        initialize_model_parallel(tp_size)
        self.head = ColumnParallelLinear(HIDDEN, VOCAB, bias=False, gather_output=False)

    def losses(self, logits, labels):
        from fairscale.nn.model_parallel.cross_entropy import vocab_parallel_cross_entropy

        return vocab_parallel_cross_entropy(logits.clone(), labels).flatten()


class OtherLabels(SplitLanguage):
    """The labels of the other rows."""

    def losses(self, logits, labels):
        return super().losses(logits, labels.roll(1, 0))
