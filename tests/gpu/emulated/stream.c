/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events. A stream does its work at once, which is one of the
 * orders that a GPU may choose; order.c checks for the others. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct emu_stream *by_default;
static int made;

void emu_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void emu_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

struct emu_stream *emu_stream_of(cudaStream_t stream)
{
    if (stream != NULL)
        return stream;
    if (by_default == NULL) {
        by_default = calloc(1, sizeof(*by_default));
        if (by_default == NULL)
            abort();
        by_default->lane = emu_lane_new(0, false);
    }
    return by_default;
}

cudaError_t emu_do(cudaStream_t stream, const char *name,
                   void (*f)(void *arg, bool backwards),
                   void (*forget)(void *arg), void *arg)
{
    struct emu_stream *s = emu_stream_of(stream);

    if (s->into != NULL) {
        emu_graph_add(s, name, f, forget, arg);
        return emu_result(cudaSuccess);
    }
    if (emu_faulted() == NULL) {
        emu_clock_join(&s->clock, &emu_host);
        emu_op_begin(&s->clock, s->lane, name);
        f(arg, false);
    }
    forget(arg);
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
    emu_count(__func__);
    if (s == NULL)
        return emu_result(cudaErrorMemoryAllocation);
    emu_lock();
    s->number = ++made;
    s->lane = emu_lane_new(s->number, false);
    s->clock = emu_host;
    /* It comes after all that an earlier stream did in this lane. */
    s->clock.at[s->lane] = emu_lane_ticks(s->lane);
    emu_unlock();
    emu_living(EMU_STREAMS, 1);
    *stream = s;
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emu_count(__func__);
    emu_lock();
    emu_lane_drop(stream->lane);
    emu_unlock();
    emu_living(EMU_STREAMS, -1);
    free(stream);
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    bool recorded;

    emu_count(__func__);
    emu_lock();
    recorded = emu_stream_of(stream)->into != NULL;
    if (emu_check_recording(__func__) && !recorded)
        emu_host_waits(&emu_stream_of(stream)->clock);
    emu_unlock();
    return emu_result(recorded ? cudaErrorStreamCaptureUnsupported
                               : cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    emu_count(__func__);
    emu_lock();
    if (emu_check_recording(__func__))
        emu_host_waits(NULL);
    emu_unlock();
    return emu_result(cudaSuccess);
}

/* Waits for an event of a recording, which the stream joins if it is not in
 * it. */
static void wait_recorded(struct emu_stream *s, const struct emu_event *event)
{
    struct emu_graph *g = emu_recording(event->recording);

    if (g == NULL) {
        emu_fault("streams: stream %d waits for an event that was recorded "
                  "into a graph which is complete",
                  s->number);
        return;
    }
    if (s->into == NULL)
        emu_graph_join(g, s);
    if (s->into != g)
        emu_fault("streams: stream %d waits for an event of another graph",
                  s->number);
    for (int i = 0; i < EMU_RECORDED; i++)
        if (s->seen[i] < event->seen[i])
            s->seen[i] = event->seen[i];
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags)
{
    struct emu_stream *s;

    (void)flags;
    emu_count(__func__);
    emu_lock();
    s = emu_stream_of(stream);
    if (event->recording != 0)
        wait_recorded(s, event);
    else if (event->recorded && s->into != NULL)
        emu_fault("streams: stream %d, which is recorded into a graph, waits "
                  "for work outside of it",
                  s->number);
    else if (event->recorded)
        emu_clock_join(&s->clock, &event->clock);
    emu_unlock();
    return emu_result(cudaSuccess);
}

/* -- events -------------------------------------------------------------------
 */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    struct emu_event *e = calloc(1, sizeof(*e));

    emu_count("cudaEventCreate");
    if (e == NULL)
        return emu_result(cudaErrorMemoryAllocation);
    e->timed = (flags & cudaEventDisableTiming) == 0;
    emu_living(EMU_EVENTS, 1);
    *event = e;
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    emu_count(__func__);
    emu_living(EMU_EVENTS, -1);
    free(event);
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct timespec now;
    struct emu_stream *s;

    emu_count(__func__);
    clock_gettime(CLOCK_MONOTONIC, &now);
    emu_lock();
    s = emu_stream_of(stream);
    event->time =
        (double)now.tv_sec + 1e-9 * (double)now.tv_nsec + emu_added_time();
    event->recorded = true;
    event->recording = s->into != NULL ? emu_graph_number(s->into) : 0;
    emu_clock_join(&s->clock, &emu_host);
    event->clock = s->clock;
    memcpy(event->seen, s->seen, sizeof(event->seen));
    emu_unlock();
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    bool recorded;

    emu_count(__func__);
    emu_lock();
    recorded = event->recording != 0;
    if (emu_check_recording(__func__) && event->recorded && !recorded)
        emu_host_waits(&event->clock);
    emu_unlock();
    return emu_result(recorded ? cudaErrorStreamCaptureUnsupported
                               : cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    emu_count(__func__);
    if (!from->timed || !to->timed)
        return emu_result(cudaErrorInvalidResourceHandle);
    *ms = (float)((to->time - from->time) * 1e3);
    return emu_result(cudaSuccess);
}
