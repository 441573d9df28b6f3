/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_MATMUL_H
#define PLAIT_KERNELS_CUDA_MATMUL_H

#include <stdbool.h>

#include "kernels/cuda/cuda.h"
#include "kernels/linear.h"

/* NVIDIA's recommendation for Hopper; also the smallest scratch. */
#define WORKSPACE ((size_t)32 << 20)

/* D [n,m] = epilogue(A B) + beta D, in cuBLASLt's terms: m x k times k x n. */
struct product {
    cublasOperation_t op_a, op_b;
    enum plait_dtype in, out;
    int tf32;                                         /* of fp32 operands */
    enum { FP8_NONE, FP8_BOTH_E4M3, FP8_B_E5M2 } fp8; /* NONE: as `in` */
    int fast; /* fp8: sums of fewer bits, which are faster */
    size_t m, n, k;
    int accumulate; /* beta 1, else 0 */
    cublasLtEpilogue_t epilogue;
    unsigned align; /* of all pointers: a power of two, at most 256 */
    int forward;    /* it belongs to the forward */
    int room;       /* multiprocessors that it leaves to transfers */
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

/* Sets a key for operands of one type that are not transposed, with no
 * epilogue; m, n and k are 0. Keys are compared as bytes, so all of it is
 * zeroed first. */
void cuda_product_init(struct product *key, enum plait_dtype type);
/* 1: done; 0: the library has no such product; -1: the queue has failed. */
int cuda_multiply(struct plait_queue *q, const char *op, struct product *key,
                  const struct operands *o);
/* 0 or -1, for products that exist for every type and shape. */
int cuda_multiply_plain(struct plait_queue *q, const char *op,
                        struct product *key, const struct operands *o);

/* The part of linear_backward_weight that comes before its product. Without
 * l->accumulate it sets dbias to 0 and, if there are no rows, also dw, which
 * the product then does not write. In either case it adds the column sums of
 * dout to dbias. dbias NULL: none. */
int cuda_begin_gradient(struct plait_queue *q, const char *op,
                        const struct plait_linear_dw *l);

/* Runs the product with one algorithm; the result goes to d. */
cublasStatus_t cuda_matmul_run(struct plait_queue *q, struct cuda_matmul *p,
                               const struct operands *o, void *d,
                               const cublasLtMatmulAlgo_t *algo);

/* -- matmul_plan.c, for tune.c ------------------------------------------- */

/* How many algorithms a search tries. */
#define CUDA_ALGORITHMS 8

/* A plan without an algorithm; NULL with *status. Free with
 * cuda_matmul_free(). */
struct cuda_matmul *cuda_matmul_create(const struct plait_device *dev,
                                       const struct product *key,
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

/* -- tune_time.c --------------------------------------------------------- */

/* Whether an algorithm runs; *algo: the fastest. Waits for q. */
bool cuda_tune_fastest(struct plait_queue *q, const struct product *key,
                       cublasLtMatmulAlgo_t *algo);

#endif
