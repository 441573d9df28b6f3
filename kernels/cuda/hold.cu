/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that keeps multiprocessors from others, as transfers between GPUs
 * do. It ends by the clock, whatever becomes of the rest. */
#include "kernels/cuda/common.cuh"

/* A search waits no longer than this for it. */
#define MOST_MS 1000

static __global__ void hold_kernel(long long clocks)
{
    long long begin = clock64();

    while (clock64() - begin < clocks)
        __nanosleep(1000);
}

/* With all of the shared memory a block has a multiprocessor for itself. */
int cuda_hold(struct plait_queue *q, cudaStream_t stream, int processors,
              double ms)
{
    int khz = 0;

    if (cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, q->dev->index) !=
            cudaSuccess ||
        cuda_allow_shared(q, "search", (const void *)hold_kernel,
                          q->dev->smem_max) != 0)
        return -1;
    ms = ms < MOST_MS ? ms : MOST_MS;
    hold_kernel<<<processors, 32, q->dev->smem_max, stream>>>(
        (long long)(ms * khz));
    return cudaPeekAtLastError() == cudaSuccess ? 0 : -1;
}
