/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_CUDA_H
#define PLAIT_KERNELS_CUDA_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "kernels/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Shared by the files of the CUDA module. Each subject keeps its ops static and
 * enters them in the table with one function, see below. */

struct cuda_block;  /* one allocation of device memory, in device.c */
struct cuda_pinned; /* one of pinned host memory, in pinned.c */
struct cuda_matmul; /* a planned matrix product, in matmul.c */
struct cuda_cudnn;  /* cuDNN and its plans, in cudnn_plan.c */
struct cuda_tuned;  /* choices of algorithms, in tune.c */

/* Number of hash chains of planned products. */
#define CUDA_MATMUL_CHAINS 128

struct plait_device {
    int index;
    int sms;         /* multiprocessors */
    int capability;  /* 89: 8.9 */
    size_t smem_max; /* limit of a block's shared memory, bytes */
    int tf32;        /* fp32 products may use TF32 */
    bool wait;       /* PLAIT_CUDA_SYNC=1: wait for each op */
    cublasLtHandle_t blas;
    pthread_mutex_t lock; /* of everything below */
    struct cuda_block *blocks;
    size_t now, peak; /* bytes */
    struct cuda_pinned *pinned;
    size_t pinned_now, pinned_peak;
    struct cuda_matmul *matmuls[CUDA_MATMUL_CHAINS];
    struct cuda_cudnn *cudnn; /* NULL until it is used */
    struct cuda_tuned *tuned; /* likewise */
    int room, forward_room;   /* multiprocessors that products leave free */
};

/* Pinned buffer that transfers from and to host memory pass through, so that
 * the caller's buffer is free on return while the queue goes on. */
struct cuda_stage {
    void *host;
    cudaEvent_t done; /* the last copy that used it */
};

struct plait_queue {
    struct plait_queue_head head;
    struct plait_device *dev;
    cudaStream_t stream;
    struct cuda_scratch *scratch;
    struct cuda_stage stage[2];
    int next_stage;
    cudaError_t status;   /* CUDA's error, if that made the queue fail */
    bool recording;       /* between graph_begin and graph_end */
    char unrecorded[160]; /* why the last recording failed */
};

/* An op begins with cuda_enter() (-1: the queue has failed before) and returns
 * cuda_leave(), which reports errors of the launches in between. */
int cuda_enter(struct plait_queue *q);
int cuda_leave(struct plait_queue *q, const char *op);
/* PLAIT_CUDA_SYNC=1: the host waits for each op, and nothing is recorded. */
int cuda_waits(void);
/* Replaces cuda_enter() in ops that wait or use host memory: -1 also while the
 * queue is recorded. */
int cuda_enter_host(struct plait_queue *q, const char *op);
/* 0, or -1 after making the queue fail with the reason of `status`. */
int cuda_check(struct plait_queue *q, const char *op, cudaError_t status);

/* Device memory for one op's intermediate results, aligned to 256 bytes. All
 * ops of the queue use the same memory, since they run in order: its contents
 * do not outlive the op. NULL: the queue has failed. */
void *cuda_scratch(struct plait_queue *q, size_t bytes);

/* Allows blocks of `kernel` to use `bytes` of shared memory: 0, or -1 and the
 * queue has failed, with ENOTSUP if this GPU has less. */
int cuda_allow_shared(struct plait_queue *q, const char *op, const void *kernel,
                      size_t bytes);

/* The table's alloc and free. */
void *cuda_alloc(struct plait_device *dev, size_t bytes);
void cuda_free(struct plait_device *dev, void *ptr);

/* *dst += the sum over i of src[i], in a fixed order. */
void cuda_sum_doubles(struct plait_queue *q, double *dst, const double *src,
                      size_t n);
/* dst[c] += the sum over r of part[r * cols + c], in a fixed order; and so
 * `second`, unless it is NULL, of as many rows behind those. */
void cuda_sum_rows(struct plait_queue *q, float *dst, float *second,
                   const float *part, size_t rows, size_t cols);
/* The kernel launches of bias_backward, gelu_forward and gelu_backward, which
 * can also add to dinp. */
void cuda_column_sums(struct plait_queue *q, enum plait_dtype type,
                      float *dbias, const void *dout, size_t N, size_t O);
void cuda_gelu(struct plait_queue *q, enum plait_dtype type, void *out,
               const void *inp, size_t n);
void cuda_gelu_gradient(struct plait_queue *q,
                        const struct plait_gelu_backward *g, int accumulate);

/* x[i, :] += bias[:]; x [N,O], bias [O] of T. For products whose epilogue
 * cannot add the bias. */
void cuda_bias(struct plait_queue *q, enum plait_dtype type, void *x,
               const void *bias, size_t N, size_t O);

/* Keeps so many multiprocessors from other work, as transfers do, for about so
 * long. */
int cuda_hold(struct plait_queue *q, cudaStream_t stream, int processors,
              double ms);

/* Called by device_destroy, when no op is running. */
void cuda_matmul_forget(struct plait_device *dev);
void cuda_tune_forget(struct plait_device *dev);
void cuda_pinned_forget(struct plait_device *dev);
void cuda_cudnn_forget(struct plait_device *dev);

/* Whether the module holds code for the current GPU. */
int cuda_has_code(void);

/* attention_backward of the table; defined in attention_backward.cu. */
int cuda_attention_backward(struct plait_queue *q,
                            const struct plait_attention_backward *g);

/* Whether the tensor-core attention takes these shapes; the plain one takes
 * all. addresses: all pointers or'ed. */
int cuda_attention_mma_fits(enum plait_dtype type,
                            const struct plait_attention *a,
                            uintptr_t addresses);
void cuda_attention_mma_forward(struct plait_queue *q,
                                const struct plait_attention_forward *f);
/* delta [batch, q_heads, q_len]: the row sums of dout * out */
void cuda_attention_mma_backward(struct plait_queue *q,
                                 const struct plait_attention_backward *g,
                                 const float *delta);

/* Whether this environment variable leaves its subject to cuDNN: 1, 0, or -1
 * and the queue has failed. */
int cuda_cudnn_chosen(struct plait_queue *q, const char *variable);
/* Writes what computes attention in 16 bits, and why, for plait_gpu_facts. */
void cuda_describe_attention(char *text, size_t size);
/* Why cuDNN cannot be used; NULL: it can. */
const char *cudnn_missing(void);
/* Whether cuDNN is to compute this attention: PLAIT_ATTENTION allows it, and it
 * has the shape. 1, 0, or -1 and the queue has failed. addresses: all pointers
 * or'ed. */
int cuda_cudnn_takes(struct plait_queue *q, enum plait_dtype type,
                     const struct plait_attention *a,
                     const struct plait_drops *drops, uintptr_t addresses);
/* 1: done; 0: this cuDNN has no plan for the shape (the queue's remark says
 * so); -1: the queue has failed. */
int cuda_cudnn_forward(struct plait_queue *q,
                       const struct plait_attention_forward *f);
int cuda_cudnn_backward(struct plait_queue *q,
                        const struct plait_attention_backward *g);
/* g's dQ, dK, dV += the dense ones, of 16-bit types; all pointers aligned to 16
 * bytes. */
void cuda_add_gradients(struct plait_queue *q,
                        const struct plait_attention_backward *g,
                        const void *const dense[3]);

void cuda_device_ops(struct plait_ops *ops);
void cuda_transfer_ops(struct plait_ops *ops);
void cuda_pinned_ops(struct plait_ops *ops);
void cuda_elementwise_ops(struct plait_ops *ops);
void cuda_e5m2_ops(struct plait_ops *ops);
void cuda_dropout_ops(struct plait_ops *ops);
void cuda_reduce_ops(struct plait_ops *ops);
void cuda_matmul_ops(struct plait_ops *ops);
void cuda_tune_ops(struct plait_ops *ops);
void cuda_grouped_ops(struct plait_ops *ops);
void cuda_fp8_ops(struct plait_ops *ops);
void cuda_norm_ops(struct plait_ops *ops);
void cuda_norm_part_ops(struct plait_ops *ops);
void cuda_embedding_ops(struct plait_ops *ops);
void cuda_attention_ops(struct plait_ops *ops);
void cuda_heads_ops(struct plait_ops *ops);
void cuda_sink_ops(struct plait_ops *ops);
void cuda_xent_ops(struct plait_ops *ops);
void cuda_route_ops(struct plait_ops *ops);
/* route_sigmoid.cu: route_forward and route_backward with a bias. */
int cuda_sigmoid_route(struct plait_queue *q, const struct plait_route *r,
                       const void *logits);
int cuda_sigmoid_gradient(struct plait_queue *q, const struct plait_route *r,
                          const struct plait_route_gradient *g);
void cuda_update_ops(struct plait_ops *ops);
void cuda_moment_ops(struct plait_ops *ops);
void cuda_update8_ops(struct plait_ops *ops);
void cuda_graph_ops(struct plait_ops *ops);
void cuda_image_ops(struct plait_ops *ops);

/* The module's function: the table, or NULL with a reason and errno
 * ENODEV (no GPU is visible), EIO (it cannot be used), ENOENT (no driver). */
__attribute__((visibility("default"))) const struct plait_ops *
plait_cuda_ops(const char **why);

#ifdef __cplusplus
}
#endif
#endif
