/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_CPU_H
#define PLAIT_KERNELS_CPU_CPU_H

#include "kernels/host.h"

/* The sources listed as cpu_vector_sources are compiled once for each
 * instruction set, with CPU_ISA as a suffix; cpu/ops.c takes the one that
 * cpu/isa.h names. Each file puts its operations into the table. */
#define CPU_PASTE(name, isa) name##_##isa
#define CPU_EXPAND(name, isa) CPU_PASTE(name, isa)
#define CPU_NAME(name) CPU_EXPAND(name, CPU_ISA)

#ifdef CPU_ISA
void CPU_NAME(cpu_fill_attention)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_block_rows)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_block_weight)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_elementwise)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_embedding)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_fp8)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_image)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_moments)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_norm)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_optim)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_rows)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_update)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_update8)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_xent)(struct plait_ops *ops);

/* fp8_amax of the table; amax NULL: nobody asks. */
int CPU_NAME(cpu_fp8_amax)(struct plait_queue *q, uint32_t *amax, const void *x,
                           size_t n);

int CPU_NAME(cpu_attention_forward)(struct plait_queue *q,
                                    enum plait_dtype type,
                                    const struct plait_attention *a, void *out,
                                    float *lse, const void *Q, const void *K,
                                    const void *V);
/* The same, where there are few queries, of one document:
 * cpu_few_queries(). */
int CPU_NAME(cpu_attention_few)(struct plait_queue *q, enum plait_dtype type,
                                const struct plait_attention *a, void *out,
                                float *lse, const void *Q, const void *K,
                                const void *V);
static inline int cpu_few_queries(const struct plait_attention *a)
{
    return a->q_len <= 4 && a->q_len < a->k_len && a->starts == NULL;
}
int CPU_NAME(cpu_attention_backward)(struct plait_queue *q,
                                     enum plait_dtype type,
                                     const struct plait_attention *a, void *dQ,
                                     void *dK, void *dV, const void *dout,
                                     const void *out, const float *lse,
                                     const void *Q, const void *K,
                                     const void *V);
#endif
int cpu_bf16_attention_backward(struct plait_queue *q, enum plait_dtype type,
                                const struct plait_attention *a, void *dQ,
                                void *dK, void *dV, const void *dout,
                                const void *out, const float *lse,
                                const void *Q, const void *K, const void *V);

/* All that vectors compute, our own products of linear layers in fp32 and
 * bf16 among it. */
void cpu_fill_base(struct plait_ops *ops);
void cpu_fill_avx2(struct plait_ops *ops);
void cpu_fill_avx512(struct plait_ops *ops);
void cpu_fill_avx512bf16(struct plait_ops *ops);
void cpu_fill_sve(struct plait_ops *ops);

/* The products of a linear layer by the libraries: where the processor has a
 * matrix unit, and what our own leave to them. */
void cpu_fill_linear(struct plait_ops *ops);
int cpu_linear_forward(struct plait_queue *q, void *out, void *pre,
                       const void *inp, struct plait_weight *w,
                       const void *bias, enum plait_activation act, size_t N);
int cpu_linear_backward_input(struct plait_queue *q, void *dinp,
                              const void *dout, struct plait_weight *w,
                              enum plait_activation act, const void *pre,
                              int accumulate, size_t N);
int cpu_linear_backward_weight(struct plait_queue *q, enum plait_dtype type,
                               float *dw, float *dbias, const void *dout,
                               const void *inp, int accumulate, size_t N,
                               size_t O, size_t C);
/* Attention in bf16 where the processor has AVX512-BF16 and no matrix unit */
void cpu_fill_bf16_attention(struct plait_ops *ops);

/* Working memory of a queue, kept from one op to the next, so that nothing
 * is allocated after the first step. Its contents do not survive the next
 * call with the same use; NULL with the queue failed. */
enum cpu_scratch_use {
    CPU_SCRATCH_OP,      /* partial sums, tiles */
    CPU_SCRATCH_LIBRARY, /* of the matrix library */
    CPU_SCRATCH_WIDE,    /* operands converted to fp32 */
    CPU_SCRATCH_FP8,     /* operands rounded to fp8 */
    CPU_NSCRATCH
};

struct cpu_products;
struct cpu_convs; /* cpu/conv.h */

struct cpu_queue {
    struct {
        void *ptr;
        size_t bytes;
    } scratch[CPU_NSCRATCH];
    struct cpu_products *products;
    struct cpu_convs *convs; /* NULL until there is a convolution */
};

struct plait_queue *cpu_queue_create(struct plait_device *dev, int priority);
void cpu_queue_destroy(struct plait_queue *q);
void *cpu_scratch(struct plait_queue *q, enum cpu_scratch_use use,
                  size_t bytes);

struct cpu_products *cpu_products_create(void);
void cpu_products_destroy(struct cpu_products *products);

/* Threads worth waking for n elements of light work. */
static inline int cpu_threads(const struct plait_queue *q, size_t n)
{
    return n < 16384 ? 1 : q->dev->threads;
}

/* The part of 0 .. n-1 that is thread `k` of `parts`'s own: whole cache
 * lines' worth of elements, as even as that allows. */
static inline void cpu_span(size_t n, int parts, int k, size_t *from,
                            size_t *to)
{
    size_t lines = (n + 63) / 64, p = (size_t)parts, i = (size_t)k;

    *from = lines * i / p * 64;
    *to = lines * (i + 1) / p * 64;
    if (*to > n)
        *to = n;
    if (*from > n)
        *from = n;
}

#endif
