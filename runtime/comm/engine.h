/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_ENGINE_H
#define PLAIT_ENGINE_H

#include <stdbool.h>

/* Moves transfers while the process computes: one thread, which sleeps when
 * there is nothing to move and stays out of the way while somebody waits,
 * because a waiting thread moves things itself. */
struct plait_engine;

enum plait_moved { PLAIT_STUCK, PLAIT_MOVED, PLAIT_DONE };

/* One transfer under way. The caller fills in advance() and keeps the job
 * where it is until plait_engine_wait() has returned. */
struct plait_job {
    /* Move what can be moved now, a few hundred KiB at most. Called by one
     * thread at a time, for the jobs in the order they were started. */
    enum plait_moved (*advance)(struct plait_job *job);
    /* the engine's: */
    struct plait_job *next;
    bool done;
    double begun, ended; /* first and last moved, by plait_trace_now() */
};

/* idle(arg) is called now and then by whoever finds nothing to move; it must
 * be safe in any thread. `threaded` false: no thread is made, jobs move in
 * waits alone. NULL with errno. */
struct plait_engine *plait_engine_create(bool threaded, void (*idle)(void *arg),
                                         void *arg);
/* No job may be under way. NULL-safe. */
void plait_engine_destroy(struct plait_engine *engine);

void plait_engine_start(struct plait_engine *engine, struct plait_job *job);
/* Until the job is done. */
void plait_engine_wait(struct plait_engine *engine, struct plait_job *job);
/* Both at once, without a word to the thread. */
void plait_engine_run(struct plait_engine *engine, struct plait_job *job);
/* One round over all jobs, if nobody else is at it. */
void plait_engine_poke(struct plait_engine *engine);

#endif
