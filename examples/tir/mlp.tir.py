# Two products with a bias, a gate and a residual: y = x + (silu(x W1 + b1)) W2.
from tvm.script import tir as T

TOKENS = 8
HIDDEN = 16
INNER = 32


@T.prim_func
def mlp(
    X: T.Buffer((TOKENS, HIDDEN), "float32"),
    W1: T.Buffer((HIDDEN, INNER), "float32"),
    B1: T.Buffer((INNER,), "float32"),
    W2: T.Buffer((INNER, HIDDEN), "float32"),
    Y: T.Buffer((TOKENS, HIDDEN), "float32"),
):
    H = T.alloc_buffer((TOKENS, INNER), "float32")
    S = T.alloc_buffer((TOKENS, INNER), "float32")
    P = T.alloc_buffer((TOKENS, HIDDEN), "float32")
    for i, j, k in T.grid(TOKENS, INNER, HIDDEN):
        with T.block("up"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                H[vi, vj] = T.float32(0)
            H[vi, vj] = H[vi, vj] + X[vi, vk] * W1[vk, vj]
    for i, j in T.grid(TOKENS, INNER):
        with T.block("act"):
            vi, vj = T.axis.remap("SS", [i, j])
            S[vi, vj] = (H[vi, vj] + B1[vj]) * T.sigmoid(H[vi, vj] + B1[vj])
    for i, j, k in T.grid(TOKENS, HIDDEN, INNER):
        with T.block("down"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                P[vi, vj] = T.float32(0)
            P[vi, vj] = P[vi, vj] + S[vi, vk] * W2[vk, vj]
    for i, j in T.grid(TOKENS, HIDDEN):
        with T.block("residual"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi, vj] + P[vi, vj]
