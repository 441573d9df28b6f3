/* SPDX-License-Identifier: Apache-2.0 */
/* Times the algorithms of a matrix product, on memory of its own, and beside a
 * kernel that holds the multiprocessors which the product leaves to
 * transfers. */
#include <string.h>

#include "kernels/cuda/matmul.h"

#define RUNS 5 /* timed, after one warm-up */

enum { A, B, D, BIAS, AUX, SCALES, NPARTS };

static size_t width_of(enum plait_dtype type)
{
    return type == PLAIT_F32 ? 4 : 2;
}

/* A number of either sign near 1, in the bits of the type. With zeros the GPU
 * would draw less power and run faster than it really does. */
static unsigned number_of(unsigned random, size_t width, bool fp16)
{
    unsigned sign = random >> 31;

    if (width == 4)
        return sign << 31 | 0x3f000000 | (random & 0xffffff);
    if (width == 2)
        return sign << 15 | (fp16 ? 0x3800 : 0x3f00) |
               (random & (fp16 ? 0x7ff : 0xff));
    return sign << 7 | 0x38 | (random & 3);
}

/* Fills a part with a few numbers from the host, repeated. */
static int fill_part(struct plait_queue *q, void *part, size_t bytes,
                     size_t width, bool fp16)
{
    unsigned char some[4096];
    size_t have = bytes < sizeof(some) ? bytes : sizeof(some);
    unsigned random = 1;

    for (size_t i = 0; i < sizeof(some); i += width) {
        unsigned x;

        random = random * 1664525 + 1013904223;
        x = number_of(random, width, fp16);
        memcpy(some + i, &x, width);
    }
    if (cudaMemcpyAsync(part, some, have, cudaMemcpyHostToDevice, q->stream) !=
            cudaSuccess ||
        cudaStreamSynchronize(q->stream) != cudaSuccess)
        return -1;
    for (size_t n; have < bytes; have += n) {
        n = bytes - have < have ? bytes - have : have;
        if (cudaMemcpyAsync((char *)part + have, part, n,
                            cudaMemcpyDeviceToDevice, q->stream) != cudaSuccess)
            return -1;
    }
    return 0;
}

/* Allocates operands for the product; -1: out of memory. */
static int make_parts(struct plait_queue *q, const struct product *k,
                      void *part[NPARTS])
{
    size_t in = k->fp8 != FP8_NONE ? 1 : width_of(k->in);
    size_t out = width_of(k->out), side = k->m > k->n ? k->m : k->n;
    size_t bytes[NPARTS] = {k->m * k->k * in,  k->n * k->k * in,
                            k->m * k->n * out, side * sizeof(float),
                            k->m * k->n * out, 2 * sizeof(float)};
    static const float ones[2] = {1, 1};

    for (int i = 0; i < NPARTS; i++) {
        size_t width = i <= B ? in : out;

        if (cudaMalloc(&part[i], bytes[i]) != cudaSuccess ||
            fill_part(q, part[i], bytes[i], width, k->in == PLAIT_FP16_T) != 0)
            return -1;
    }
    return cudaMemcpyAsync(part[SCALES], ones, sizeof(ones),
                           cudaMemcpyHostToDevice, q->stream) == cudaSuccess &&
                   cudaStreamSynchronize(q->stream) == cudaSuccess
               ? 0
               : -1;
}

static void set_operands(struct operands *o, const struct product *k,
                         void *const part[NPARTS])
{
    cublasLtEpilogue_t e = k->epilogue;

    o->a = part[A];
    o->b = part[B];
    o->d = part[D];
    if (e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
        e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        o->bias = part[BIAS];
    if (e == CUBLASLT_EPILOGUE_GELU_AUX ||
        e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || e == CUBLASLT_EPILOGUE_DGELU)
        o->aux = part[AUX];
    if (k->fp8 != FP8_NONE) {
        o->a_scale = part[SCALES];
        o->b_scale = o->a_scale + 1;
    }
}

/* What a search times with. */
struct timer {
    cudaEvent_t from, to;
    cudaStream_t beside; /* NULL: the product leaves no room to transfers */
};

/* Milliseconds of RUNS runs; negative if the algorithm does not run. */
static float time_runs(struct plait_queue *q, struct cuda_matmul *p,
                       const struct operands *o,
                       const cublasLtMatmulAlgo_t *algo, const struct timer *t)
{
    float ms = -1;

    for (int i = 0; i <= RUNS; i++) {
        if (i == 1 && cudaEventRecord(t->from, q->stream) != cudaSuccess)
            return -1;
        if (cuda_matmul_run(q, p, o, o->d, algo) != CUBLAS_STATUS_SUCCESS)
            return -1;
    }
    if (cudaEventRecord(t->to, q->stream) != cudaSuccess ||
        cudaEventSynchronize(t->to) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
        return -1;
    return ms;
}

/* The same while the room is held: on an idle device the algorithms would win
 * that take all of it. *alone: of the first algorithm on the idle device; 0:
 * not known yet. One that takes more than three times as long is timed beside
 * nothing in the end, and is not chosen anyway. */
static float time_beside(struct plait_queue *q, struct cuda_matmul *p,
                         const struct operands *o,
                         const cublasLtMatmulAlgo_t *algo,
                         const struct timer *t, float *alone)
{
    float ms;

    if (t->beside == NULL)
        return time_runs(q, p, o, algo, t);
    if (*alone <= 0)
        *alone = time_runs(q, p, o, algo, t);
    if (*alone < 0 || cuda_hold(q, t->beside, p->key.room, 3.0 * *alone) != 0)
        return -1;
    ms = time_runs(q, p, o, algo, t);
    cudaStreamSynchronize(t->beside);
    return ms;
}

/* Sets p->algo to the fastest algorithm; returns whether there is one. */
static bool time_all(struct plait_queue *q, struct cuda_matmul *p,
                     const struct operands *o, const struct timer *t)
{
    cublasLtMatmulHeuristicResult_t list[CUDA_ALGORITHMS];
    float best = -1, alone = 0;
    int found;

    if (cuda_matmul_list(q->dev->blas, p, list, &found) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    for (int i = 0; i < found; i++) {
        float ms = time_beside(q, p, o, &list[i].algo, t, &alone);

        if (ms >= 0 && (best < 0 || ms < best)) {
            best = ms;
            p->algo = list[i].algo;
        }
    }
    return best >= 0;
}

static bool find_fastest(struct plait_queue *q, struct cuda_matmul *p,
                         const struct operands *o)
{
    struct timer t = {NULL, NULL, NULL};
    bool found = cudaEventCreate(&t.from) == cudaSuccess &&
                 cudaEventCreate(&t.to) == cudaSuccess;

    if (found && p->key.room > 0)
        found = cudaStreamCreateWithPriority(&t.beside, cudaStreamNonBlocking,
                                             0) == cudaSuccess;
    found = found && time_all(q, p, o, &t);
    if (t.from != NULL)
        cudaEventDestroy(t.from);
    if (t.to != NULL)
        cudaEventDestroy(t.to);
    if (t.beside != NULL)
        cudaStreamDestroy(t.beside);
    return found;
}

bool cuda_tune_fastest(struct plait_queue *q, const struct product *key,
                       cublasLtMatmulAlgo_t *algo)
{
    struct cuda_matmul *p = NULL;
    struct operands o = {0};
    void *part[NPARTS] = {NULL};
    cublasStatus_t status;
    bool found;

    o.workspace = cuda_scratch(q, WORKSPACE);
    if (o.workspace != NULL && make_parts(q, key, part) == 0) {
        set_operands(&o, key, part);
        p = cuda_matmul_create(q->dev, key, &o, &status);
    }
    found = p != NULL && find_fastest(q, p, &o);
    if (found)
        *algo = p->algo;
    cudaStreamSynchronize(q->stream);
    cuda_matmul_free(p);
    for (int i = 0; i < NPARTS; i++)
        if (part[i] != NULL)
            cudaFree(part[i]);
    cudaGetLastError();
    return found;
}
