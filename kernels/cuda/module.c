/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA module plait_cuda.so: it fills the table of operations and answers
 * whether a GPU works. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cuda.h"
#include "kernels/same_build.h"

/* Exported beside the table. */
extern const struct plait_build plait_cuda_build;
__attribute__((visibility("default")))
const struct plait_build plait_cuda_build = PLAIT_CUDA_BUILD;

/* The table is filled once and not changed afterwards. */
static struct plait_ops table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void table_fill(void)
{
    table.name = "cuda";
    table.gpu = 1;
    cuda_device_ops(&table);
    cuda_transfer_ops(&table);
    cuda_pinned_ops(&table);
    cuda_elementwise_ops(&table);
    cuda_e5m2_ops(&table);
    cuda_dropout_ops(&table);
    cuda_reduce_ops(&table);
    cuda_matmul_ops(&table);
    cuda_tune_ops(&table);
    cuda_grouped_ops(&table);
    cuda_fp8_ops(&table);
    cuda_norm_ops(&table);
    cuda_norm_part_ops(&table);
    cuda_embedding_ops(&table);
    cuda_attention_ops(&table);
    cuda_heads_ops(&table);
    cuda_sink_ops(&table);
    cuda_xent_ops(&table);
    cuda_route_ops(&table);
    cuda_update_ops(&table);
    cuda_moment_ops(&table);
    cuda_update8_ops(&table);
    cuda_graph_ops(&table);
    cuda_image_ops(&table);
}

/* ENODEV: no GPU is visible; EIO: there is one that cannot be used; ENOENT:
 * there is no driver, or one too old to tell. */
static int reason_of(cudaError_t status)
{
    switch (status) {
    case cudaSuccess:
    case cudaErrorNoDevice:
        return ENODEV;
    case cudaErrorInsufficientDriver:
        return ENOENT;
    default:
        return EIO;
    }
}

const struct plait_ops *plait_cuda_ops(const char **why)
{
    int count = 0;
    cudaError_t status;

    /* Read when CUDA begins. With 8, the default, streams of several
     * communicators share a connection, and one waits for another's work. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    status = cudaGetDeviceCount(&count);

    if (status != cudaSuccess || count == 0) {
        cudaGetLastError();
        if (why != NULL)
            *why = status != cudaSuccess ? cudaGetErrorString(status)
                                         : "no CUDA device is visible";
        errno = reason_of(status);
        return NULL;
    }
    pthread_once(&table_once, table_fill);
    return &table;
}
