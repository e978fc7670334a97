# A TileLang softmax: a block of rows in a fragment, maximum and sum along them.
import tilelang.language as T


def softmax(M, N, block_M=4, dtype="float32"):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            rows = T.alloc_fragment((block_M, N), dtype)
            top = T.alloc_fragment((block_M,), dtype)
            total = T.alloc_fragment((block_M,), dtype)
            T.copy(X[bx * block_M : (bx + 1) * block_M, :], rows)
            T.reduce_max(rows, top, dim=1)
            for i, j in T.Parallel(block_M, N):
                rows[i, j] = T.exp(rows[i, j] - top[i])
            T.reduce_sum(rows, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                rows[i, j] = rows[i, j] / total[i]
            T.copy(rows, Y[bx * block_M : (bx + 1) * block_M, :])

    return main
