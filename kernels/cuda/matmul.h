/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_MATMUL_H
#define PLAIT_KERNELS_CUDA_MATMUL_H

#include <stdbool.h>

#include "kernels/cuda/cuda.h"

/* NVIDIA's recommendation for Hopper; also the smallest scratch. */
#define WORKSPACE ((size_t)32 << 20)

/* D [n,m] = epilogue(A B) + beta D, in cuBLASLt's terms: m x k times k x n. */
struct product {
    cublasOperation_t op_a, op_b;
    enum plait_dtype in, out;
    int tf32;                                         /* of fp32 operands */
    enum { FP8_NONE, FP8_BOTH_E4M3, FP8_B_E5M2 } fp8; /* NONE: as `in` */
    size_t m, n, k;
    int accumulate; /* beta 1, else 0 */
    cublasLtEpilogue_t epilogue;
    unsigned align; /* of all pointers: a power of two, at most 256 */
};

struct operands {
    const void *a, *b;
    void *d;
    const void *bias;               /* NULL: none */
    void *aux;                      /* likewise */
    void *workspace;                /* WORKSPACE bytes */
    const float *a_scale, *b_scale; /* device; fp8 only */
};

/* A planned product, kept by its key. */
struct cuda_matmul {
    struct cuda_matmul *next;
    struct product key;
    bool supported;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
};

struct plait_weight {
    enum plait_dtype type;
    size_t O, C;
    const void *data;
    struct plait_device *dev;
    /* From fp8_weight(): codes after their scale, plait_fp8_bytes(); NULL: it
     * was never called. */
    unsigned char *codes;
    bool rounded; /* the codes are up to date */
};

/* Keys are compared as bytes, so they are zeroed first. */
struct product *cuda_product_init(struct product *key, cublasOperation_t op_a,
                                  cublasOperation_t op_b, enum plait_dtype type,
                                  size_t m, size_t n, size_t k);
/* 1: done; 0: the library has no such product; -1: the queue has failed. */
int cuda_multiply(struct plait_queue *q, const char *op, struct product *key,
                  const struct operands *o);
/* 0 or -1, for products that exist for every type and shape. */
int cuda_multiply_plain(struct plait_queue *q, const char *op,
                        struct product *key, const struct operands *o);

/* What comes before the product that makes dw [O,C] of dout [N,O]: zeroes what
 * is not added to, which is dbias [O] and, if there are no rows, dw; and adds
 * the sums of dout to dbias, unless it is NULL. */
int cuda_begin_gradient(struct plait_queue *q, const char *op,
                        enum plait_dtype type, float *dw, float *dbias,
                        const void *dout, int accumulate, size_t N, size_t O,
                        size_t C);

/* Runs the product with one algorithm; the result goes to d. */
cublasStatus_t cuda_matmul_run(struct plait_queue *q, struct cuda_matmul *p,
                               const struct operands *o, void *d,
                               const cublasLtMatmulAlgo_t *algo);

/* -- matmul_plan.c, for tune.c ------------------------------------------- */

/* How many algorithms a search tries. */
#define CUDA_ALGORITHMS 8

/* A plan without an algorithm; NULL with *status. Free with
 * cuda_matmul_free(). */
struct cuda_matmul *cuda_matmul_create(const struct product *key,
                                       const struct operands *o,
                                       cublasStatus_t *status);
void cuda_matmul_free(struct cuda_matmul *p);
/* Lists the library's algorithms for p, its first choice first; *found 0:
 * none. */
cublasStatus_t cuda_matmul_list(cublasLtHandle_t blas,
                                const struct cuda_matmul *p,
                                cublasLtMatmulHeuristicResult_t *list,
                                int *found);

/* -- tune.c -------------------------------------------------------------- */

/* Whether a valid algorithm was chosen for p->key; if so, sets p->algo. The
 * caller holds the device's lock. */
bool cuda_tune_find(struct plait_device *dev, struct cuda_matmul *p);
/* Notes that none was chosen. The caller holds the lock. */
void cuda_tune_want(struct plait_device *dev, const struct product *key);

#endif
