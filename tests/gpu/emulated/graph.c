/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings and graphs: a list of steps, each with the steps of other streams
 * that must come before it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

struct step {
    struct step *next;
    const char *name;
    void (*f)(void *arg, bool backwards);
    void (*forget)(void *arg);
    void *arg;
    int at; /* index of its stream in the recording */
    unsigned seen[EMU_RECORDED];
};

struct emu_graph {
    struct emu_graph *next; /* list of recordings that have not ended */
    unsigned number;
    pthread_t thread; /* that began it */
    struct step *first, **end;
    int users; /* the recording or the graph, and executables made of it */
    /* Its streams; the first one began it. */
    struct emu_stream *stream[EMU_RECORDED];
    int stream_number[EMU_RECORDED];
    unsigned steps[EMU_RECORDED];
    int lane[EMU_RECORDED]; /* -1: none yet */
    int nstreams;
};

static struct emu_graph *recordings;
static unsigned made;

/* -- recording --------------------------------------------------------------
 */

struct emu_graph *emu_recording(unsigned number)
{
    struct emu_graph *g = recordings;

    while (g != NULL && g->number != number)
        g = g->next;
    return g;
}

unsigned emu_graph_number(const struct emu_graph *g)
{
    return g->number;
}

bool emu_check_recording(const char *call)
{
    const struct emu_graph *g = recordings;

    while (g != NULL && !pthread_equal(g->thread, pthread_self()))
        g = g->next;
    if (g == NULL)
        return true;
    emu_fault("streams: %s while stream %d is recorded into a graph", call,
              g->stream_number[0]);
    return false;
}

void emu_graph_join(struct emu_graph *g, struct emu_stream *s)
{
    if (g->nstreams == EMU_RECORDED) {
        emu_fault("more than %d streams in a graph", EMU_RECORDED);
        return;
    }
    memset(s->seen, 0, sizeof(s->seen));
    s->into = g;
    s->at = g->nstreams++;
    g->stream[s->at] = s;
    g->stream_number[s->at] = s->number;
    g->lane[s->at] = -1;
}

void emu_graph_add(struct emu_stream *s, const char *name,
                   void (*f)(void *arg, bool backwards),
                   void (*forget)(void *arg), void *arg)
{
    struct step *step = calloc(1, sizeof(*step));
    struct emu_graph *g = s->into;

    if (step == NULL)
        abort();
    step->name = name;
    step->f = f;
    step->forget = forget;
    step->arg = arg;
    step->at = s->at;
    s->seen[s->at] = ++g->steps[s->at];
    memcpy(step->seen, s->seen, sizeof(step->seen));
    *g->end = step;
    g->end = &step->next;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   enum cudaStreamCaptureMode mode)
{
    struct emu_graph *g;

    (void)mode;
    emu_count(__func__);
    if (stream == NULL || stream->into != NULL)
        return emu_result(cudaErrorStreamCaptureUnsupported);
    g = calloc(1, sizeof(*g));
    if (g == NULL)
        return emu_result(cudaErrorMemoryAllocation);
    g->end = &g->first;
    g->users = 1;
    g->thread = pthread_self();
    emu_lock();
    g->number = ++made;
    g->next = recordings;
    recordings = g;
    emu_graph_join(g, stream);
    emu_unlock();
    emu_living(EMU_GRAPHS, 1);
    return emu_result(cudaSuccess);
}

/* Reports streams that joined the recording and that its first stream has not
 * waited for at the end. */
static void check_joined(const struct emu_graph *g)
{
    const struct emu_stream *origin = g->stream[0];

    for (int i = 1; i < g->nstreams; i++)
        if (origin->seen[i] < g->steps[i])
            emu_fault("streams: the recording of stream %d ends before stream "
                      "%d, which has joined it, is waited for",
                      g->stream_number[0], g->stream_number[i]);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    struct emu_graph *g, **link = &recordings;

    emu_count(__func__);
    if (stream == NULL || stream->into == NULL || stream->at != 0)
        return emu_result(cudaErrorStreamCaptureUnmatched);
    g = stream->into;
    emu_lock();
    check_joined(g);
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    for (int i = 0; i < g->nstreams; i++) {
        g->stream[i]->into = NULL;
        memset(g->stream[i]->seen, 0, sizeof(g->stream[i]->seen));
    }
    emu_unlock();
    *graph = g;
    return emu_result(cudaSuccess);
}

/* -- graphs
 * --------------------------------------------------------------------- */

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
    emu_lock();
    for (int i = 0; i < g->nstreams; i++)
        if (g->lane[i] >= 0)
            emu_lane_drop(g->lane[i]);
    emu_unlock();
    emu_living(EMU_GRAPHS, -1);
    free(g);
}

/* EMULATED_GRAPHS=N: fails after the first N. */
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec,
                                          cudaGraph_t graph,
                                          unsigned long long flags)
{
    const char *most = getenv("EMULATED_GRAPHS");
    static int executables;

    (void)flags;
    emu_count(__func__);
    emu_lock();
    if (most != NULL && ++executables > atoi(most)) {
        emu_unlock();
        return emu_result(cudaErrorInvalidValue);
    }
    for (int i = 0; i < graph->nstreams; i++)
        if (graph->lane[i] < 0)
            graph->lane[i] = emu_lane_new(graph->stream_number[i], true);
    emu_unlock();
    graph->users++;
    *exec = graph;
    return emu_result(cudaSuccess);
}

/* Runs the steps after what the stream has done, each after the steps that it
 * depends on. Two runs of a graph never overlap. */
static void run_steps(struct emu_graph *g, struct emu_stream *stream)
{
    unsigned begin[EMU_RECORDED];
    struct emu_clock before, clock;

    emu_clock_join(&stream->clock, &emu_host);
    before = stream->clock;
    for (int i = 0; i < g->nstreams; i++)
        begin[i] = emu_lane_ticks(g->lane[i]);
    for (struct step *s = g->first; s != NULL; s = s->next) {
        if (emu_faulted() != NULL)
            return;
        clock = before;
        for (int i = 0; i < g->nstreams; i++)
            clock.at[g->lane[i]] = begin[i] + s->seen[i];
        emu_op_begin(&clock, g->lane[s->at], s->name);
        s->f(s->arg, true);
    }
    for (int i = 0; i < g->nstreams; i++)
        stream->clock.at[g->lane[i]] = emu_lane_ticks(g->lane[i]);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    emu_count(__func__);
    if (emu_stream_of(stream)->into != NULL)
        return emu_result(cudaErrorStreamCaptureUnsupported);
    emu_lock();
    run_steps(exec, emu_stream_of(stream));
    emu_unlock();
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    emu_count(__func__);
    graph_drop(graph);
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    emu_count(__func__);
    graph_drop(exec);
    return emu_result(cudaSuccess);
}
