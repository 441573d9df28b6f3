/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_ATTENTION_SEEN_CUH
#define PLAIT_KERNELS_CUDA_ATTENTION_SEEN_CUH

#include "kernels/attention.h"

/* Shared by the plain attention and that on tensor cores. Which keys a query
 * sees: none after its own position, and with documents none of an earlier
 * document. */

/* Attention, and what follows from its cap: numbers that kernels read where
 * they need them, so that none of them takes a register. */
struct capped_attention : plait_attention {
    float inverse; /* 1 / cap; 0: there is no cap */
    float in;      /* 2^(in x) = e^(2 s / cap), of a product x and its score
                      s = scale x */
    float out;     /* cap / scale: tanh(s / cap) of it is the product that has
                      the capped score */

    explicit capped_attention(const struct plait_attention &a)
        : plait_attention(a), inverse(0), in(0), out(0)
    {
        if (a.cap > 0) {
            inverse = 1 / a.cap;
            in = 2.8853900817779268f * a.scale / a.cap;
            out = a.cap / a.scale;
        }
    }
};

/* The same with dropout. A kernel has one of the two as the type of its
 * parameter: in a larger one, those without dropout would take more registers,
 * though they read nothing of it. */
struct dropped_attention : capped_attention {
    struct plait_drops drops;
    uint32_t threshold;
    float kept; /* what is not dropped is multiplied by this */

    dropped_attention(const struct plait_attention &a,
                      const struct plait_drops &drops)
        : capped_attention(a), drops(drops),
          threshold(plait_drop_threshold(drops.rate)),
          kept(plait_drop_scale(drops.rate))
    {
    }
};

/* What a backward reads for its queries and keys. delta [batch, q_heads,
 * q_len]: the row sums of dout * out. */
template <typename T> struct backward_inputs {
    const T *dout;
    const float *delta, *lse;
    const T *Q, *K, *V;

    backward_inputs(const struct plait_attention_backward &g,
                    const float *delta)
        : dout((const T *)g.dout), delta(delta), lse(g.lse), Q((const T *)g.Q),
          K((const T *)g.K), V((const T *)g.V)
    {
    }
};

/* Where a backward stores what it computes for keys. */
template <typename T> struct key_gradients {
    T *dK, *dV;
};

/* The row of dropout of a query of head h of sequence b, if there is dropout.
 */
static __device__ inline struct plait_drop_row
dropped_row(const struct capped_attention &, size_t, int, int64_t)
{
    return {};
}

static __device__ inline struct plait_drop_row
dropped_row(const struct dropped_attention &a, size_t b, int h, int64_t query)
{
    return plait_drop_row(a.drops.keys[b], a.q_pos + query, a.drops.place + h);
}

/* What the probability of the chunk's key is multiplied by in that row. */
static __device__ inline float kept_part(const struct capped_attention &,
                                         struct plait_drop_row, int)
{
    return 1;
}

static __device__ inline float kept_part(const struct dropped_attention &a,
                                         struct plait_drop_row row, int key)
{
    return plait_drop_word(row, (uint32_t)(a.k_pos + key)) < a.threshold
               ? 0
               : a.kept;
}

/* How many keys, counted from the first, are not after the query. */
static __device__ inline int64_t seen(const struct plait_attention &a,
                                      int64_t query)
{
    int64_t n = a.q_pos + query - a.k_pos + 1;

    return n < 0 ? 0 : n > a.k_len ? a.k_len : n;
}

/* How many keys, counted from the first, the query of sequence b does not see
 * because they belong to earlier documents; not decreasing with the query. */
static __device__ inline int hidden(const struct plait_attention &a, size_t b,
                                    int query)
{
    int64_t n = 0;

    if (a.starts != NULL)
        n = a.starts[b * a.q_len + min(query, a.q_len - 1)] - a.k_pos;
    return n < 0 ? 0 : n > a.k_len ? a.k_len : (int)n;
}

/* How many queries of sequence b, counted from the first, belong to documents
 * that do not begin after the key. */
static __device__ inline int last_queries(const struct plait_attention &a,
                                          size_t b, int key)
{
    int low = 0, high = a.q_len, middle;

    if (a.starts == NULL)
        return a.q_len;
    while (low < high) {
        middle = (low + high) / 2;
        if (hidden(a, b, middle) <= key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* *peak becomes the largest x of the warp, if that is larger; all lanes call
 * it. Floats of one sign are ordered as the integers of their bits are, those
 * below 0 the other way round. */
static __device__ inline void raise_peak(float *peak, float x)
{
    int bits;

    for (int i = 16; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, i));
    bits = __float_as_int(x);
    if (threadIdx.x % 32 != 0)
        return;
    if (bits >= 0)
        atomicMax((int *)peak, bits);
    else
        atomicMin((unsigned *)peak, (unsigned)bits);
}

#endif
