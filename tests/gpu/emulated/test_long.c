/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over 2048 tokens in bf16 with grouped queries, on the emulated GPU
 * against the CPU: many tiles, and some far from the first. */
#include <math.h>
#include <stdlib.h>

#include "kernels/attention.h"
#include "kernels/dtype.h"
#include "kernels/kernels.h"
#include "tap.h"
#include "test_seed.h"

enum { LENGTH = 2048, HEADS = 2, KV_HEADS = 1, DIM = 64 };
enum { QUERIES = LENGTH * HEADS * DIM, KEYS = LENGTH * KV_HEADS * DIM };
enum { Q, K, V, DOUT, OUT, DQ, DK, DV, ARRAYS };

static const size_t elements[ARRAYS] = {QUERIES, KEYS,    KEYS, QUERIES,
                                        QUERIES, QUERIES, KEYS, KEYS};

static uint16_t *random_values(uint64_t seed, size_t n)
{
    uint16_t *x = malloc(n * sizeof(*x));

    for (size_t i = 0; x != NULL && i < n; i++)
        x[i] = plait_bf16_of_f32(
            (float)plait_rounding_bits(seed, i) * 0x1p-31f - 1);
    return x;
}

/* Forward and backward. The first four arrays are inputs, the others
 * results. */
static int run(const struct plait_ops *ops, uint16_t *const *host)
{
    struct plait_attention a = {.batch = 1,
                                .q_len = LENGTH,
                                .k_len = LENGTH,
                                .q_heads = HEADS,
                                .kv_heads = KV_HEADS,
                                .head_dim = DIM,
                                .q_stride = HEADS * DIM,
                                .kv_stride = KV_HEADS * DIM,
                                .scale = 0.125f};
    struct plait_device *dev = ops->device_create(0, 2);
    struct plait_queue *q = ops->queue_create(dev, 0);
    float *lse = ops->alloc(dev, LENGTH * HEADS * sizeof(*lse));
    void *p[ARRAYS];
    int rc = 0;

    for (int i = 0; i < ARRAYS; i++) {
        p[i] = ops->alloc(dev, elements[i] * 2);
        if (i <= DOUT)
            rc |= ops->to_device(q, p[i], host[i], elements[i] * 2);
    }
    rc |= ops->attention_forward(
        q, &(struct plait_attention_forward){.type = PLAIT_BF16_T,
                                             .a = a,
                                             .out = p[OUT],
                                             .lse = lse,
                                             .Q = p[Q],
                                             .K = p[K],
                                             .V = p[V]});
    rc |= ops->attention_backward(
        q, &(struct plait_attention_backward){.type = PLAIT_BF16_T,
                                              .a = a,
                                              .dQ = p[DQ],
                                              .dK = p[DK],
                                              .dV = p[DV],
                                              .dout = p[DOUT],
                                              .out = p[OUT],
                                              .lse = lse,
                                              .Q = p[Q],
                                              .K = p[K],
                                              .V = p[V]});
    for (int i = OUT; i < ARRAYS; i++)
        rc |= ops->to_host(q, host[i], p[i], elements[i] * 2);
    if (plait_queue_error(q) != NULL)
        diag("%s: %s", ops->name, plait_queue_error(q));
    for (int i = 0; i < ARRAYS; i++)
        ops->free(dev, p[i]);
    ops->free(dev, lse);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
    return rc;
}

/* The norm of the difference over the norm of a. */
static double distance(const uint16_t *a, const uint16_t *b, size_t n)
{
    double difference = 0, whole = 0;

    for (size_t i = 0; i < n; i++) {
        double x = plait_f32_of_bf16(a[i]), y = plait_f32_of_bf16(b[i]);

        difference += (x - y) * (x - y);
        whole += y * y;
    }
    return sqrt(difference / whole);
}

int main(void)
{
    static const char *const name[ARRAYS] = {NULL,  NULL, NULL, NULL,
                                             "out", "dQ", "dK", "dV"};
    const char *why = NULL;
    const struct plait_ops *cuda = plait_ops_cuda(&why);
    uint16_t *mine[ARRAYS], *wanted[ARRAYS];
    uint64_t seed;

    if (cuda == NULL)
        return skip_all(why);
    seed = test_seed();
    for (int i = 0; i < ARRAYS; i++) {
        mine[i] = random_values(seed + (uint64_t)i * QUERIES, elements[i]);
        wanted[i] =
            i <= DOUT ? mine[i] : malloc(elements[i] * sizeof(**wanted));
        if (mine[i] == NULL || wanted[i] == NULL)
            return 99;
    }
    ok(run(cuda, mine) == 0 && run(plait_ops_cpu(), wanted) == 0,
       "2048 tokens, forward and backward");
    for (int i = OUT; i < ARRAYS; i++) {
        double d = distance(mine[i], wanted[i], elements[i]);

        ok(d < 0x1p-6, "%s is off by %.2g of its norm", name[i], d);
        free(wanted[i]);
    }
    for (int i = 0; i < ARRAYS; i++)
        free(mine[i]);
    return done_testing();
}
