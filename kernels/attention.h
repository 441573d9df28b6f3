/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_ATTENTION_H
#define PLAIT_KERNELS_ATTENTION_H

#include "kernels/dropout.h"
#include "kernels/kernels.h"

/* Causal attention of a chunk of queries over a chunk of keys. Query i has
 * global position q_pos + i and sees key j iff k_pos + j <= q_pos + i and, with
 * starts, k_pos + j >= starts[i]: the position where the document of query i
 * begins. Tiles that no query sees are skipped.
 *   Q, dQ     [batch, q_len, q_heads, head_dim], rows q_stride apart
 *   K, V, ..  [batch, k_len, kv_heads, head_dim], rows kv_stride apart
 *   out, dout [batch, q_len, q_heads, head_dim], dense
 *   lse       [batch, q_heads, q_len] fp32: log sum exp of the scores
 * A stride is the number of elements from one token to the next, so that Q, K
 * and V may be parts of one fused buffer. Head h of Q uses head h /
 * (q_heads/kv_heads) of K and V. A query that sees no key has out 0 and lse
 * -inf. */
struct plait_attention {
    int batch, q_len, k_len, q_heads, kv_heads, head_dim;
    size_t q_stride, kv_stride;
    int64_t q_pos, k_pos;
    const int32_t *starts; /* [batch, q_len], device: not decreasing within a
                            * sequence, none beyond its query's own position;
                            * NULL: all 0 */
    int window;            /* starts are those of a sliding window alone, of so
                            * many keys, the query's own among them; 0: it is
                            * not known. starts count. */
    float scale;           /* 1/sqrt(head_dim) */
    float cap;             /* scaled scores s become cap tanh(s / cap), which
                            * the mask then hides; 0: they stay s */
    int overwrite;         /* dQ, dK, dV are overwritten, not added to */
};

/* The heads that cuDNN computes at most, of which those beyond 128 have plans
 * on some GPUs alone, and in what steps. plait_model_own_attention() says the
 * same of a configuration; tests/unit/test_attention_choice.c compares them. */
enum { PLAIT_CUDNN_HEAD_MOST = 256, PLAIT_CUDNN_HEAD_STEP = 8 };

/* Own kernels for heads that have none on tensor cores (16 bits, heads of 64
 * and 128): the most columns of a head, and what a block needs of shared
 * memory, `tiles` of 32 rows in fp32 and `squares` of 32 x 32 scores. The
 * backward's is its larger kernel. topology/job/fits_gpu.c says the same before
 * a run; tests/unit/test_fits_gpu.c compares them. */
enum {
    PLAIT_ATTENTION_HEAD_MOST = 256,
    PLAIT_ATTENTION_TILE = 32,
    PLAIT_FORWARD_TILES = 3,
    PLAIT_FORWARD_SQUARES = 1,
    PLAIT_BACKWARD_TILES = 4,
    PLAIT_BACKWARD_SQUARES = 2
};
static inline size_t plait_attention_bytes(int head_dim, int tiles, int squares)
{
    return sizeof(float) * PLAIT_ATTENTION_TILE *
           ((size_t)tiles * (size_t)(head_dim + 1) +
            (size_t)squares * (PLAIT_ATTENTION_TILE + 1));
}

/* The ops; shapes of their arrays as above. drops: of the softmax's
 * probabilities, before they weigh the values; the row is a query's head, its
 * columns are the keys' positions. */
struct plait_attention_forward {
    enum plait_dtype type; /* T */
    struct plait_attention a;
    struct plait_drops drops;
    void *out;             /* out, of T */
    float *lse;            /* out */
    const void *Q, *K, *V; /* in, of T */
    float *peak;           /* [q_heads] in and out: becomes the largest score of
                            * each head, capped if they are, if that is larger;
                            * NULL: unused */
};

struct plait_attention_backward {
    enum plait_dtype type; /* T */
    struct plait_attention a;
    struct plait_drops drops;
    void *dQ, *dK, *dV;    /* +=, or out: of T, rounded once per call; strides
                            * as those of Q, K, V */
    const void *dout;      /* in, of T */
    const void *out;       /* in, of T: out and lse are those of the whole
                            * softmax, over all chunks */
    const float *lse;      /* in */
    const void *Q, *K, *V; /* in, of T */
};

struct plait_attention_merge {
    enum plait_dtype type; /* T */
    struct plait_attention a;
    float *out;        /* in and out: shape of struct plait_attention's out */
    float *lse;        /* in and out */
    const void *out2;  /* in, of T: as out */
    const float *lse2; /* in: as lse */
};

/* Attention sinks (as in GPT-OSS): a softmax with one more score for each head,
 * which is learned and whose key has no value. The forward follows the one of
 * attention over all keys, whose results it turns into those with a sink:
 *   lse' = log(e^lse + e^sink), out' = e^(lse - lse') out
 * and attention_backward(), given these, needs to know nothing of it. */
struct plait_attention_sink {
    enum plait_dtype type; /* T */
    int batch, q_len, heads, head_dim;
    const void *sink; /* in: [heads] of T */
    void *out;        /* in and out: [batch, q_len, heads, head_dim] of T */
    float *lse;       /* in and out: [batch, heads, q_len] */
};

/* dsink -= the sum over all queries of e^(sink - lse) dout . out */
struct plait_attention_sink_gradient {
    enum plait_dtype type; /* T */
    int batch, q_len, heads, head_dim;
    const void *sink;       /* in: as above */
    const void *out, *dout; /* in, of T: as the forward has left out */
    const float *lse;       /* in: as the forward has left it */
    float *dsink;           /* +=: [heads] */
};

#endif
