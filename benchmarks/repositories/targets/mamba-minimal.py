"""mamba-minimal, small."""

from model import Mamba, ModelArgs


def small():
    return Mamba(ModelArgs(d_model=64, n_layer=2, vocab_size=64))
