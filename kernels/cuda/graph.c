/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded work: CUDA's stream capture and executable graphs. The host launches
 * the whole graph at once, and the GPU then launches its kernels one after the
 * other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

struct plait_graph {
    struct plait_queue *q;
    cudaGraphExec_t exec;
};

/* Capture is thread-local: other threads (one that writes a checkpoint, a
 * communicator's watchdog) may allocate and wait meanwhile, only this one may
 * not. */
static int graph_begin(struct plait_queue *q)
{
    if (cuda_enter(q) != 0)
        return -1;
    if (cuda_check(q, "graph_begin",
                   cudaStreamBeginCapture(
                       q->stream, cudaStreamCaptureModeThreadLocal)) != 0)
        return -1;
    q->recording = true;
    return 0;
}

/* Whether a failure during recording was caused by the recording itself: an op
 * refused to be part of a graph, or CUDA did. */
static bool is_of_recording(const struct plait_queue *q)
{
    return q->status == cudaSuccess ||
           (q->status >= cudaErrorStreamCaptureUnsupported &&
            q->status <= cudaErrorStreamCaptureWrongThread);
}

/* Resets the queue after a failure caused by recording, since nothing has run.
 * It stays failed if an op is wrong or the device itself has failed, which all
 * later calls report, too. */
static void forgive(struct plait_queue *q, const char **why)
{
    memcpy(q->unrecorded, q->head.error, sizeof(q->unrecorded));
    *why = q->unrecorded;
    cudaGetLastError();
    if (!is_of_recording(q) || cudaStreamSynchronize(q->stream) != cudaSuccess)
        return;
    q->head.failed = 0;
    q->status = cudaSuccess;
}

/* Work of other queues that has joined the recording (transfers) keeps its
 * priority. */
static struct plait_graph *graph_end(struct plait_queue *q, const char **why)
{
    struct plait_graph *graph = calloc(1, sizeof(*graph));
    cudaGraph_t recorded = NULL;
    cudaError_t status;

    q->recording = false;
    status = cudaStreamEndCapture(q->stream, &recorded);
    if (graph == NULL)
        plait_queue_fail(&q->head, ENOMEM, "graph_end: out of host memory");
    if (cuda_check(q, "graph_end", status) == 0 && q->head.failed == 0 &&
        cuda_check(q, "graph_end",
                   cudaGraphInstantiateWithFlags(
                       &graph->exec, recorded,
                       cudaGraphInstantiateFlagUseNodePriority)) != 0)
        q->status = cudaSuccess; /* no op failed: they can run without a
                                  * graph */
    if (recorded != NULL)
        cudaGraphDestroy(recorded);
    if (q->head.failed != 0) {
        forgive(q, why);
        free(graph);
        return NULL;
    }
    graph->q = q;
    return graph;
}

static int graph_run(struct plait_queue *q, struct plait_graph *graph)
{
    if (cuda_enter(q) != 0)
        return -1;
    return cuda_check(q, "graph_run", cudaGraphLaunch(graph->exec, q->stream));
}

static void graph_destroy(struct plait_graph *graph)
{
    int saved = errno;

    if (graph == NULL)
        return;
    cudaSetDevice(graph->q->dev->index);
    cudaStreamSynchronize(graph->q->stream);
    cudaGraphExecDestroy(graph->exec);
    free(graph);
    errno = saved;
}

void cuda_graph_ops(struct plait_ops *ops)
{
    if (cuda_waits())
        return;
    ops->graph_begin = graph_begin;
    ops->graph_end = graph_end;
    ops->graph_run = graph_run;
    ops->graph_destroy = graph_destroy;
}
