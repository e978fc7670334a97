"""Which ops of a program run as one kernel, what kernels read and write, what is kept for backward.

Found in the one-device program by structure alone, in repeated blocks too. Attention keeps no
scores (FlashAttention, arXiv 2205.14135), experts are one grouped product that gathers no weights,
elementwise ops and reductions between products are one chain, and a value that a chain of backward
can compute from kept ones is not kept.
"""
