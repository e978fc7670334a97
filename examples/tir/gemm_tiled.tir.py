# The same product in tiles of 32 by 16; the last row of tiles is cut by a predicate.
from tvm.script import tir as T

M = 50
N = 32
K = 16


@T.prim_func
def gemm_tiled(
    A: T.Buffer((M, K), "float32"), B: T.Buffer((K, N), "float32"), C: T.Buffer((M, N), "float32")
):
    for i0, j0, k0 in T.grid(T.ceildiv(M, 32), N // 16, K // 8):
        for i1, j1, k1 in T.grid(32, 16, 8):
            with T.block("C"):
                vi = T.axis.spatial(M, i0 * 32 + i1)
                vj = T.axis.spatial(N, j0 * 16 + j1)
                vk = T.axis.reduce(K, k0 * 8 + k1)
                T.where(i0 * 32 + i1 < M)
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
