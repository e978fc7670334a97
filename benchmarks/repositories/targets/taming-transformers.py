"""taming-transformers' GPT, small."""

from taming.modules.transformer.mingpt import GPT


def small():
    return GPT(64, 32, n_layer=2, n_head=4, n_embd=64)
