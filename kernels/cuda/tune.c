/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/matmul.h"

#define RUNS 5 /* timed, after one that is not */

static const char *cache_path(void)
{
    const char *path = getenv("PLAIT_MATMUL_CACHE");

    return path != NULL && *path != '\0' ? path : NULL;
}

/* Sizes that are not whole 64s, such as the rows of an expert, share what is
 * found: four steps to a power of two. */
static size_t bucket_of(size_t n)
{
    size_t step = 1;

    if (n % 64 == 0)
        return n;
    while (step * 8 <= n)
        step *= 2;
    return (n + step - 1) / step * step;
}

/* The line of the file that belongs to the product, up to the algorithm. */
static int write_key(char *text, size_t size, const struct plait_device *dev,
                     const struct product *k)
{
    struct cudaDeviceProp prop;

    if (cudaGetDeviceProperties(&prop, dev->index) != cudaSuccess)
        return -1;
    for (char *c = prop.name; *c != '\0'; c++)
        if (*c == ' ')
            *c = '_';
    return snprintf(
        text, size,
        "%s %zu op %d,%d type %d,%d tf32 %d fp8 %d size %zu,%zu,%zu add %d "
        "epilogue %d align %u : ",
        prop.name, cublasLtGetVersion(), k->op_a, k->op_b, k->in, k->out,
        k->tf32, k->fp8, bucket_of(k->m), bucket_of(k->n), bucket_of(k->k),
        k->accumulate, k->epilogue, k->align);
}

static bool read_algo(const char *hex, cublasLtMatmulAlgo_t *algo)
{
    unsigned char *p = (unsigned char *)algo;

    for (size_t i = 0; i < sizeof(*algo); i++) {
        unsigned byte;

        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            return false;
        p[i] = (unsigned char)byte;
    }
    return true;
}

bool cuda_tune_find(struct plait_device *dev, struct cuda_matmul *p)
{
    const char *path = cache_path();
    char key[512], line[1024];
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t algo;
    bool found = false;
    FILE *f;
    int n;

    if (path == NULL || (f = fopen(path, "re")) == NULL)
        return false;
    n = write_key(key, sizeof(key), dev, &p->key);
    while (!found && n > 0 && fgets(line, sizeof(line), f) != NULL)
        found = strncmp(line, key, (size_t)n) == 0 &&
                strlen(line) == (size_t)n + 2 * sizeof(algo) + 1 &&
                read_algo(line + n, &algo);
    fclose(f);
    found = found &&
            cublasLtMatmulAlgoCheck(dev->blas, p->desc, p->a, p->b, p->d, p->d,
                                    &algo, &result) == CUBLAS_STATUS_SUCCESS &&
            result.workspaceSize <= WORKSPACE;
    if (found)
        p->algo = algo;
    return found;
}

/* One write, so that ranks which share the file do not mix their lines. A
 * file that cannot be written costs the next run its search, no more. */
static void keep(struct plait_device *dev, const struct cuda_matmul *p)
{
    const unsigned char *bytes = (const unsigned char *)&p->algo;
    char line[1024];
    int fd, n = write_key(line, sizeof(line), dev, &p->key);

    if (n < 0 || n + 2 * sizeof(p->algo) + 2 > sizeof(line))
        return;
    for (size_t i = 0; i < sizeof(p->algo); i++)
        n += snprintf(line + n, 3, "%02x", bytes[i]);
    line[n++] = '\n';
    fd = open(cache_path(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    /* A line cut short by a full disk matches no product. */
    if (write(fd, line, (size_t)n) < 0)
        errno = 0;
    close(fd);
}

/* Milliseconds of RUNS runs; negative where the algorithm does not run. */
static float time_runs(struct plait_queue *q, struct cuda_matmul *p,
                       const struct operands *o, void *d,
                       const cublasLtMatmulAlgo_t *algo, cudaEvent_t from,
                       cudaEvent_t to)
{
    float ms = -1;

    for (int i = 0; i <= RUNS; i++) {
        if (i == 1 && cudaEventRecord(from, q->stream) != cudaSuccess)
            return -1;
        if (cuda_matmul_run(q, p, o, d, algo) != CUBLAS_STATUS_SUCCESS)
            return -1;
    }
    if (cudaEventRecord(to, q->stream) != cudaSuccess ||
        cudaEventSynchronize(to) != cudaSuccess ||
        cudaEventElapsedTime(&ms, from, to) != cudaSuccess)
        return -1;
    return ms;
}

void cuda_tune(struct plait_queue *q, struct cuda_matmul *p,
               const struct operands *o,
               const cublasLtMatmulHeuristicResult_t *candidates, int n)
{
    cudaEvent_t from = NULL, to = NULL;
    float best = -1;
    void *result;

    if (n < 2 || cache_path() == NULL)
        return;
    /* Space for a result that nobody reads, fp32 at most. Where there is none
     * the library's favourite stands: a search must not end a run. */
    if (cudaMalloc(&result, p->key.m * p->key.n * 4) != cudaSuccess) {
        cudaGetLastError();
        return;
    }
    if (cudaEventCreate(&from) == cudaSuccess &&
        cudaEventCreate(&to) == cudaSuccess) {
        for (int i = 0; i < n; i++) {
            float ms =
                time_runs(q, p, o, result, &candidates[i].algo, from, to);

            if (ms >= 0 && (best < 0 || ms < best)) {
                best = ms;
                p->algo = candidates[i].algo;
            }
        }
    }
    if (from != NULL)
        cudaEventDestroy(from);
    if (to != NULL)
        cudaEventDestroy(to);
    cudaFree(result);
    cudaGetLastError();
    if (best >= 0)
        keep(q->dev, p);
}
