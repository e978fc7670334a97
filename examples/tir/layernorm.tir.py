# Layer norm over the last dim, with a weight and a bias.
from tvm.script import tir as T

ROWS = 8
COLS = 16


@T.prim_func
def layernorm(
    X: T.Buffer((ROWS, COLS), "float32"),
    W: T.Buffer((COLS,), "float32"),
    B: T.Buffer((COLS,), "float32"),
    Y: T.Buffer((ROWS, COLS), "float32"),
):
    total = T.alloc_buffer((ROWS,), "float32")
    squares = T.alloc_buffer((ROWS,), "float32")
    for i, k in T.grid(ROWS, COLS):
        with T.block("sums"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
                squares[vi] = T.float32(0)
            total[vi] = total[vi] + X[vi, vk]
            squares[vi] = squares[vi] + X[vi, vk] * X[vi, vk]
    for i, j in T.grid(ROWS, COLS):
        with T.block("norm"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = (X[vi, vj] - total[vi] / T.float32(COLS)) * T.rsqrt(
                squares[vi] / T.float32(COLS)
                - (total[vi] / T.float32(COLS)) * (total[vi] / T.float32(COLS))
                + T.float32(1e-5)
            ) * W[vj] + B[vj]
