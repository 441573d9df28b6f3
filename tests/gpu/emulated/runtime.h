/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_RUNTIME_H
#define PLAIT_TESTS_GPU_EMULATED_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "order.h"

/* What the calls of the emulated runtime share. */

/* One at a time, as the emulated GPU is one. */
void emu_lock(void);
void emu_unlock(void);

/* What a call returns: the fault, if there was one, else `status`, which is
 * also remembered for cudaGetLastError(). */
cudaError_t emu_result(cudaError_t status);

/* f(arg) in the stream's order, as the operation `name`: at once, or each time
 * that the graph runs which the stream is recorded into; then backwards is true
 * and arg is forgotten with the graph. */
cudaError_t emu_do(cudaStream_t stream, const char *name,
                   void (*f)(void *arg, bool backwards),
                   void (*forget)(void *arg), void *arg);

/* -- streams and graphs (stream.c, graph.c) -------------------------------- */

/* Streams of one recording, at most. */
#define EMU_RECORDED 16

struct emu_stream {
    struct emu_stream *next;
    int number, lane;
    struct emu_clock clock;
    /* Recorded: what it does goes there; its place among the streams of the
     * recording, and of each of them how many steps are before its next. */
    struct emu_graph *into;
    int at;
    unsigned seen[EMU_RECORDED];
};

struct emu_event {
    bool recorded, timed;
    double time;
    struct emu_clock clock;
    unsigned recording; /* recorded into this, with what was before; 0: none */
    unsigned seen[EMU_RECORDED];
};

/* NULL is the default stream. */
struct emu_stream *emu_stream_of(cudaStream_t stream);
/* A graph's next step, of that stream. */
void emu_graph_add(struct emu_stream *s, const char *name,
                   void (*f)(void *arg, bool backwards),
                   void (*forget)(void *arg), void *arg);
/* The recording of that number that is under way, or NULL. */
struct emu_graph *emu_recording(unsigned number);
unsigned emu_graph_number(const struct emu_graph *g);
void emu_graph_join(struct emu_graph *g, struct emu_stream *s);
/* Whether a recording that this thread has begun allows the call, which
 * allocates or waits; else a fault. */
bool emu_check_recording(const char *call);

/* -- what there was (calls.c) ---------------------------------------------- */

enum emu_kind { EMU_STREAMS, EMU_EVENTS, EMU_GRAPHS, EMU_COMMS, EMU_KINDS };

/* Something was made (1) or destroyed (-1). */
void emu_living(enum emu_kind kind, int change);
/* The host has made this call. */
void emu_count(const char *call);

/* The dynamic shared memory that a kernel may have. */
size_t emu_allowed_shared(const void *kernel);

/* Seconds that slow algorithms of products took so far: choices.c. */
double emu_added_time(void);

#endif
