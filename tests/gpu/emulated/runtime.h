/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_RUNTIME_H
#define PLAIT_TESTS_GPU_EMULATED_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "order.h"

/* Declarations that the calls of the emulated runtime share. */

/* Serializes all calls, as the emulated GPU can do only one thing at a time. */
void emu_lock(void);
void emu_unlock(void);

/* A call's result: the fault if there was one, else `status`; kept for
 * cudaGetLastError(). */
cudaError_t emu_result(cudaError_t status);

/* Runs f(arg) on the stream as the operation `name`: at once; or, if the stream
 * is being recorded, whenever the graph runs, then with backwards true.
 * forget(arg) is called after f, or when the graph is destroyed. */
cudaError_t emu_do(cudaStream_t stream, const char *name,
                   void (*f)(void *arg, bool backwards),
                   void (*forget)(void *arg), void *arg);

/* -- streams and graphs (stream.c, graph.c) -------------------------------- */

/* The most streams that one recording can have. */
#define EMU_RECORDED 16

struct emu_stream {
    struct emu_stream *next;
    int number, lane;
    struct emu_clock clock;
    /* While it is recorded: the recording, the stream's index in it, and how
     * many steps of each of the recording's streams come before its next
     * step. */
    struct emu_graph *into;
    int at;
    unsigned seen[EMU_RECORDED];
};

struct emu_event {
    bool recorded, timed;
    double time;
    struct emu_clock clock;
    unsigned recording; /* number of its recording; 0: none */
    unsigned seen[EMU_RECORDED];
};

/* NULL is the default stream. */
struct emu_stream *emu_stream_of(cudaStream_t stream);
/* Adds a step of stream s to the graph that it is recorded into. */
void emu_graph_add(struct emu_stream *s, const char *name,
                   void (*f)(void *arg, bool backwards),
                   void (*forget)(void *arg), void *arg);
/* The unfinished recording of that number, or NULL. */
struct emu_graph *emu_recording(unsigned number);
unsigned emu_graph_number(const struct emu_graph *g);
void emu_graph_join(struct emu_graph *g, struct emu_stream *s);
/* Whether the call, which allocates or waits, is allowed: not while a recording
 * that this thread began is unfinished; then a fault. */
bool emu_check_recording(const char *call);

/* -- counts (calls.c) ------------------------------------------------------ */

enum emu_kind { EMU_STREAMS, EMU_EVENTS, EMU_GRAPHS, EMU_COMMS, EMU_KINDS };

/* Counts an object that was created (1) or destroyed (-1). */
void emu_living(enum emu_kind kind, int change);
/* Counts a call of the host. */
void emu_count(const char *call);

/* Reports a product for so many multiprocessors (0: all) that may run beside a
 * collective of NCCL's, which has some of them: nccl_group.c. */
void emu_check_room(int sms);

/* The dynamic shared memory that a kernel may use, in bytes. */
size_t emu_allowed_shared(const void *kernel);

/* Seconds that slow algorithms have added to the times of events: choices.c. */
double emu_added_time(void);

#endif
