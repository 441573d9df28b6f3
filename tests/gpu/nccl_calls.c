/* SPDX-License-Identifier: Apache-2.0 */
/* What a transfer costs the host where communicators block and where they do
 * not, which is what Plait uses: NCCL then starts a thread for each call, and
 * the caller polls. Two ranks share one GPU, each with a host of its own by
 * NCCL_HOSTID, and sum 8 bytes over the loopback interface. */
#define _GNU_SOURCE
#include "config.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"
#include "topology/base/clock.h"

/* Calls that are timed, and how many of them are queued at once. */
enum { CALLS = 400, QUEUED = 50 };
/* Seconds for all of it. */
enum { LIMIT_S = 50 };

static int rank;
static cudaStream_t stream;
static float *x; /* [2] on the GPU */

/* As nccl_await() does. */
static ncclResult_t await(ncclComm_t comm, ncclResult_t r)
{
    while (r == ncclInProgress) {
        sched_yield();
        if (ncclCommGetAsyncError(comm, &r) != ncclSuccess)
            return ncclInternalError;
    }
    return r;
}

/* Seconds of the host in a call, or -1. */
static double time_calls(ncclComm_t comm)
{
    double sum = 0, begun;

    for (int i = 0; i < QUEUED + CALLS; i++) {
        if (i % QUEUED == 0 && cudaStreamSynchronize(stream) != cudaSuccess)
            return -1;
        begun = plait_clock_now();
        if (await(comm, ncclAllReduce(x, x, 2, ncclFloat, ncclMax, comm,
                                      stream)) != ncclSuccess)
            return -1;
        if (i >= QUEUED) /* the first ones connect */
            sum += plait_clock_now() - begun;
    }
    return cudaStreamSynchronize(stream) == cudaSuccess ? sum / CALLS : -1;
}

static void measure(const ncclUniqueId *id, int blocking)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    double seconds = -1;
    ncclResult_t r;

    config.blocking = blocking;
    r = ncclCommInitRankConfig(&comm, 2, *id, rank, &config);
    if (comm != NULL && await(comm, r) == ncclSuccess)
        seconds = time_calls(comm);
    if (rank == 0)
        ok(seconds > 0, "%s communicators: %.1f us of the host for a call",
           blocking ? "blocking" : "non-blocking", seconds * 1e6);
    if (comm != NULL)
        ncclCommAbort(comm);
}

/* to: where rank 0 says the ids, from: where rank 1 reads them. */
static int measure_both(int to, int from)
{
    ncclUniqueId id[2];

    setenv("NCCL_HOSTID", rank ? "plait-calls-1" : "plait-calls-0", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
    alarm(LIMIT_S);
    if (rank == 0 && (ncclGetUniqueId(&id[0]) != ncclSuccess ||
                      ncclGetUniqueId(&id[1]) != ncclSuccess ||
                      write(to, id, sizeof(id)) != (ssize_t)sizeof(id)))
        return -1;
    if (rank == 1 && read(from, id, sizeof(id)) != (ssize_t)sizeof(id))
        return -1;
    if (cudaSetDevice(0) != cudaSuccess ||
        cudaStreamCreate(&stream) != cudaSuccess ||
        cudaMalloc((void **)&x, 2 * sizeof(*x)) != cudaSuccess ||
        cudaMemset(x, 0, 2 * sizeof(*x)) != cudaSuccess)
        return -1;
    measure(&id[0], 0);
    measure(&id[1], 1);
    return 0;
}

/* Whether there is a GPU, asked in a process of its own: a process that has
 * used CUDA must not fork. */
static int has_gpu(void)
{
    int n = 0, status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(cudaGetDeviceCount(&n) == cudaSuccess && n > 0 ? 0 : 1);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    int ends[2], status = -1;
    pid_t child;

    if (!has_gpu())
        return skip_all("no GPU");
    if (!ok(pipe(ends) == 0, "a pipe"))
        return done_testing();
    child = fork();
    rank = child == 0;
    if (rank == 1)
        _exit(measure_both(ends[1], ends[0]) < 0);
    ok(measure_both(ends[1], ends[0]) == 0, "two ranks on a GPU");
    ok(child > 0 && waitpid(child, &status, 0) == child && status == 0,
       "the second one ends");
    return done_testing();
}
