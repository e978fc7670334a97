# Softmax of each row, shifted by its maximum.
from tvm.script import tir as T

ROWS = 8
COLS = 16


@T.prim_func
def softmax(A: T.Buffer((ROWS, COLS), "float32"), Y: T.Buffer((ROWS, COLS), "float32")):
    with T.block("root"):
        top = T.alloc_buffer((ROWS,), "float32")
        shifted = T.alloc_buffer((ROWS, COLS), "float32")
        total = T.alloc_buffer((ROWS,), "float32")
        for i, k in T.grid(ROWS, COLS):
            with T.block("top"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(top[vi])
                with T.init():
                    top[vi] = T.min_value("float32")
                top[vi] = T.max(top[vi], A[vi, vk])
        for i, j in T.grid(ROWS, COLS):
            with T.block("shifted"):
                vi, vj = T.axis.remap("SS", [i, j])
                shifted[vi, vj] = T.exp(A[vi, vj] - top[vi])
        for i, k in T.grid(ROWS, COLS):
            with T.block("total"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] = total[vi] + shifted[vi, vk]
        for i, j in T.grid(ROWS, COLS):
            with T.block("norm"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = shifted[vi, vj] / total[vi]
