"""AReaL: log-probabilities and entropies of split logits, beside its own of whole ones."""

# pyright: basic

import sys
from types import ModuleType

from torch import nn

from benchmarks.clones.parts import part

_platforms = sys.modules["areal.infra.platforms"] = ModuleType("areal.infra.platforms")
_platforms.is_npu_available = False
functions = part("areal.utils.functional.vocab_parallel")


class Logprob(nn.Module):
    group = None

    def forward(self, logits, labels):
        return functions.gather_logprobs(logits, labels, 0.7, self.group)


class Both(Logprob):
    def forward(self, logits, labels):
        return functions.gather_logprobs_entropy(logits, labels, 0.7, self.group)


class SplitLogprob(Logprob):
    def __init__(self, mesh):
        super().__init__()
        self.group = mesh.get_group()


class SplitBoth(Both, SplitLogprob):
    pass
