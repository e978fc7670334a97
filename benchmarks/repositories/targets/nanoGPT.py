"""nanoGPT, small."""

from model import GPT, GPTConfig


def small():
    return GPT(GPTConfig(block_size=32, vocab_size=64, n_layer=2, n_head=4, n_embd=64))
