# Causal attention, one head of one sequence in a block: the whole score matrix in a fragment.
import tilelang.language as T


def attention(batch, heads, seq, dim, scale=0.125, dtype="float32", accum_dtype="float32"):
    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, seq, dim), dtype),
        K: T.Tensor((batch, heads, seq, dim), dtype),
        V: T.Tensor((batch, heads, seq, dim), dtype),
        Y: T.Tensor((batch, heads, seq, dim), dtype),
    ):
        with T.Kernel(heads, batch, threads=128) as (bh, bb):
            q = T.alloc_shared((seq, dim), dtype)
            k = T.alloc_shared((seq, dim), dtype)
            v = T.alloc_shared((seq, dim), dtype)
            score = T.alloc_fragment((seq, seq), accum_dtype)
            top = T.alloc_fragment((seq,), accum_dtype)
            total = T.alloc_fragment((seq,), accum_dtype)
            out = T.alloc_fragment((seq, dim), accum_dtype)
            T.copy(Q[bb, bh, 0:seq, :], q)
            T.copy(K[bb, bh, 0:seq, :], k)
            T.copy(V[bb, bh, 0:seq, :], v)
            T.clear(score)
            T.gemm(q, k, score, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(seq, seq):
                score[i, j] = T.if_then_else(i >= j, score[i, j] * scale, T.min_value(accum_dtype))
            T.reduce_max(score, top, dim=1)
            for i, j in T.Parallel(seq, seq):
                score[i, j] = T.exp(score[i, j] - top[i])
            T.reduce_sum(score, total, dim=1)
            for i, j in T.Parallel(seq, seq):
                score[i, j] /= total[i]
            T.clear(out)
            T.gemm(score, v, out)
            T.copy(out, Y[bb, bh, 0:seq, :])

    return main
