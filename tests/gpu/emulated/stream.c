/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events and graphs. What a stream is given it does at once, which
 * is one of the orders that a GPU may choose. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "machine.h"
#include "runtime.h"

struct step {
    struct step *next;
    void (*f)(void *arg, bool backwards);
    void (*forget)(void *arg);
    void *arg;
};

struct emu_graph {
    struct step *first, **end;
    int users; /* the recording or the graph, and what was made of it */
};

struct emu_stream {
    struct emu_graph *into; /* recorded: what it does goes there */
    bool origin;            /* the recording began with it */
    struct emu_stream *next;
};

struct emu_event {
    struct emu_graph *into; /* recorded into this */
    double time;
    bool timed;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct emu_stream *streams;
static int recordings;

void emu_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void emu_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

bool emu_recording(void)
{
    return recordings > 0;
}

bool emu_is_recorded(cudaStream_t stream)
{
    return stream != NULL && stream->into != NULL;
}

static void graph_drop(struct emu_graph *g)
{
    if (g == NULL || --g->users > 0)
        return;
    while (g->first != NULL) {
        struct step *s = g->first;

        g->first = s->next;
        s->forget(s->arg);
        free(s);
    }
    free(g);
}

cudaError_t emu_do(cudaStream_t stream, void (*f)(void *arg, bool backwards),
                   void (*forget)(void *arg), void *arg)
{
    struct step *s;

    if (!emu_is_recorded(stream)) {
        if (emu_faulted() == NULL)
            f(arg, false);
        forget(arg);
        return emu_result(cudaSuccess);
    }
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->f = f;
    s->forget = forget;
    s->arg = arg;
    *stream->into->end = s;
    stream->into->end = &s->next;
    return emu_result(cudaSuccess);
}

/* -- streams ----------------------------------------------------------------
 */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                         int priority)
{
    struct emu_stream *s = calloc(1, sizeof(*s));

    (void)flags;
    (void)priority;
    if (s == NULL)
        return emu_result(cudaErrorMemoryAllocation);
    emu_lock();
    s->next = streams;
    streams = s;
    emu_unlock();
    *stream = s;
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emu_lock();
    for (struct emu_stream **s = &streams; *s != NULL; s = &(*s)->next) {
        if (*s == stream) {
            *s = stream->next;
            break;
        }
    }
    emu_unlock();
    free(stream);
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return emu_result(emu_is_recorded(stream)
                          ? cudaErrorStreamCaptureUnsupported
                          : cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags)
{
    (void)flags;
    emu_lock();
    if (event->into != NULL && stream->into == NULL)
        stream->into = event->into; /* it joins the recording */
    emu_unlock();
    return emu_result(cudaSuccess);
}

/* -- events -------------------------------------------------------------------
 */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    struct emu_event *e = calloc(1, sizeof(*e));

    if (e == NULL)
        return emu_result(cudaErrorMemoryAllocation);
    e->timed = (flags & cudaEventDisableTiming) == 0;
    *event = e;
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    event->time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    event->into = stream != NULL ? stream->into : NULL;
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return emu_result(event->into != NULL ? cudaErrorStreamCaptureUnsupported
                                          : cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!from->timed || !to->timed)
        return emu_result(cudaErrorInvalidResourceHandle);
    *ms = (float)((to->time - from->time) * 1e3);
    return emu_result(cudaSuccess);
}

/* -- graphs
 * --------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   enum cudaStreamCaptureMode mode)
{
    struct emu_graph *g;

    (void)mode;
    if (stream == NULL || stream->into != NULL)
        return emu_result(cudaErrorStreamCaptureUnsupported);
    g = calloc(1, sizeof(*g));
    if (g == NULL)
        return emu_result(cudaErrorMemoryAllocation);
    g->end = &g->first;
    g->users = 1;
    emu_lock();
    stream->into = g;
    stream->origin = true;
    recordings++;
    emu_unlock();
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    struct emu_graph *g;

    if (stream == NULL || stream->into == NULL || !stream->origin)
        return emu_result(cudaErrorStreamCaptureUnmatched);
    g = stream->into;
    emu_lock();
    for (struct emu_stream *s = streams; s != NULL; s = s->next)
        if (s->into == g)
            s->into = NULL;
    stream->origin = false;
    recordings--;
    emu_unlock();
    *graph = g;
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec,
                                          cudaGraph_t graph,
                                          unsigned long long flags)
{
    (void)flags;
    graph->users++;
    *exec = graph;
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (emu_is_recorded(stream))
        return emu_result(cudaErrorStreamCaptureUnsupported);
    emu_lock();
    for (struct step *s = exec->first; s != NULL; s = s->next)
        if (emu_faulted() == NULL)
            s->f(s->arg, true);
    emu_unlock();
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    graph_drop(graph);
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    graph_drop(exec);
    return emu_result(cudaSuccess);
}
