"""minGPT, small."""

from mingpt.model import GPT


def small():
    config = GPT.get_default_config()
    config.model_type = None
    config.n_layer, config.n_head, config.n_embd = 2, 4, 64
    config.vocab_size, config.block_size = 64, 32
    config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = 0.0
    return GPT(config)
