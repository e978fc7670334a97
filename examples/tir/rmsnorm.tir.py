# RMS norm over the last dim, with a weight.
from tvm.script import tir as T

ROWS = 8
COLS = 16


@T.prim_func
def rmsnorm(
    X: T.Buffer((ROWS, COLS), "float32"),
    W: T.Buffer((COLS,), "float32"),
    Y: T.Buffer((ROWS, COLS), "float32"),
):
    squares = T.alloc_buffer((ROWS,), "float32")
    for i, k in T.grid(ROWS, COLS):
        with T.block("squares"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                squares[vi] = T.float32(0)
            squares[vi] = squares[vi] + X[vi, vk] * X[vi, vk]
    for i, j in T.grid(ROWS, COLS):
        with T.block("norm"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi, vj] * T.rsqrt(squares[vi] / T.float32(COLS) + T.float32(1e-6)) * W[vj]
