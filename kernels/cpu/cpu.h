/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_CPU_H
#define PLAIT_KERNELS_CPU_CPU_H

#include "kernels/host.h"

/* The sources listed as cpu_vector_sources are compiled once per instruction
 * set, with CPU_ISA as a suffix; cpu/ops.c takes the set that cpu_isa()
 * returns. Each file enters its operations in the table. */
#define CPU_PASTE(name, isa) name##_##isa
#define CPU_EXPAND(name, isa) CPU_PASTE(name, isa)
#define CPU_NAME(name) CPU_EXPAND(name, CPU_ISA)

#ifdef CPU_ISA
void CPU_NAME(cpu_fill_attention)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_block_rows)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_block_weight)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_dropout)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_elementwise)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_embedding)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_fp8)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_image)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_moments)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_norm)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_optim)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_rows)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_sink)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_tiles)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_tiles_weight)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_update)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_update8)(struct plait_ops *ops);
void CPU_NAME(cpu_fill_xent)(struct plait_ops *ops);

/* fp8_amax of the table; amax NULL: not wanted. */
int CPU_NAME(cpu_fp8_amax)(struct plait_queue *q, uint32_t *amax, const void *x,
                           size_t n);

int CPU_NAME(cpu_attention_forward)(struct plait_queue *q,
                                    const struct plait_attention_forward *f);
/* The same for few queries of one document, if cpu_few_queries(). */
int CPU_NAME(cpu_attention_few)(struct plait_queue *q,
                                const struct plait_attention_forward *f);
int CPU_NAME(cpu_attention_backward)(struct plait_queue *q,
                                     const struct plait_attention_backward *g);
#endif
int cpu_bf16_attention_backward(struct plait_queue *q,
                                const struct plait_attention_backward *g);

/* Enters all ops computed with vectors, including our own products of linear
 * layers in fp32 and bf16. */
void cpu_fill_base(struct plait_ops *ops);
void cpu_fill_avx2(struct plait_ops *ops);
void cpu_fill_avx512(struct plait_ops *ops);
void cpu_fill_avx512bf16(struct plait_ops *ops);
void cpu_fill_sve(struct plait_ops *ops);

/* Our own products of linear layers in bf16 by the matrix unit. */
void cpu_fill_tiles_amx(struct plait_ops *ops);

/* The products of a linear layer by the libraries: used if the processor has a
 * matrix unit, and for products that our own code does not take. */
void cpu_fill_linear(struct plait_ops *ops);
int cpu_linear_forward(struct plait_queue *q, const struct plait_linear *l);
int cpu_linear_backward_input(struct plait_queue *q,
                              const struct plait_linear_dinp *l);
int cpu_linear_backward_weight(struct plait_queue *q,
                               const struct plait_linear_dw *l);
/* dbias alone. */
int cpu_linear_bias_gradient(struct plait_queue *q,
                             const struct plait_linear_dw *l);
/* Attention in bf16 for processors with AVX512-BF16 but no matrix unit. */
void cpu_fill_bf16_attention(struct plait_ops *ops);

/* A queue's working memory, kept from op to op so that nothing is allocated
 * after the first step. The next call with the same use invalidates its
 * contents. NULL: the queue has failed. */
enum cpu_scratch_use {
    CPU_SCRATCH_OP,      /* partial sums, tiles */
    CPU_SCRATCH_LIBRARY, /* scratchpad of oneDNN */
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

/* Number of threads worth waking for n elements of light work. */
static inline int cpu_threads(const struct plait_queue *q, size_t n)
{
    return n < 16384 ? 1 : q->dev->threads;
}

/* The part *from .. *to - 1 of 0 .. n-1 for part k of `parts`: whole cache
 * lines of elements, as evenly as that allows. */
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
