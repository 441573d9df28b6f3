/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/rope.h"

/* The position of row i within its document. */
static int64_t position(const int32_t *starts, int64_t pos0, size_t i, size_t T)
{
    return pos0 + (int64_t)(i % T) - (starts != NULL ? starts[i] : 0);
}

int ref_embedding_forward(struct plait_queue *q, enum plait_dtype type,
                          void *out, const int32_t *tokens, const void *wte,
                          const void *wpe, int32_t first, int32_t count,
                          int64_t pos0, const int32_t *starts, size_t N,
                          size_t T, size_t C)
{
    (void)q;
    for (size_t i = 0; i < N; i++) {
        int64_t row = (int64_t)tokens[i] - first;
        size_t pos = (size_t)position(starts, pos0, i, T);

        for (size_t c = 0; c < C; c++) {
            double x = 0;

            if (row >= 0 && row < count)
                x = ref_get(type, wte, (size_t)row * C + c);
            if (wpe != NULL)
                x += ref_get(type, wpe, pos * C + c);
            ref_put(type, out, i * C + c, x);
        }
    }
    return 0;
}

int ref_embedding_backward(struct plait_queue *q, enum plait_dtype type,
                           float *dwte, float *dwpe, const int32_t *tokens,
                           const void *dout, int32_t first, int32_t count,
                           int64_t pos0, const int32_t *starts, size_t N,
                           size_t T, size_t C)
{
    (void)q;
    for (size_t i = 0; i < N; i++) {
        int64_t row = (int64_t)tokens[i] - first;
        size_t pos = (size_t)position(starts, pos0, i, T);

        for (size_t c = 0; c < C; c++) {
            float d = (float)ref_get(type, dout, i * C + c);

            if (dwte != NULL && row >= 0 && row < count)
                dwte[(size_t)row * C + c] += d;
            if (dwpe != NULL)
                dwpe[pos * C + c] += d;
        }
    }
    return 0;
}

/* Su et al., "RoFormer", with Llama's half-split layout of the pairs. */
int ref_rope(struct plait_queue *q, enum plait_dtype type, void *x,
             size_t stride, int heads, int head_dim,
             const struct plait_rope *rope, int64_t pos0, const int32_t *starts,
             int direction, size_t N, size_t T)
{
    size_t D = (size_t)head_dim;

    (void)q;
    assert(head_dim % 2 == 0);
    for (size_t i = 0; i < N; i++) {
        double pos = (double)position(starts, pos0, i, T);

        for (size_t j = 0; j < (size_t)heads * D / 2; j++) {
            size_t d = j % (D / 2);
            size_t at = i * stride + j / (D / 2) * D + d;
            double angle = direction * pos * plait_rope_step(rope, d, head_dim);
            double a = ref_get(type, x, at);
            double b = ref_get(type, x, at + D / 2);

            ref_put(type, x, at, a * cos(angle) - b * sin(angle));
            ref_put(type, x, at + D / 2, a * sin(angle) + b * cos(angle));
        }
    }
    return 0;
}
