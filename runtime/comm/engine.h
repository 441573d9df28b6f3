/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_ENGINE_H
#define PLAIT_RUNTIME_COMM_ENGINE_H

#include <stdbool.h>

/* Moves transfers while the process computes: one thread, which sleeps when
 * there is nothing to move, and while another thread waits for a transfer:
 * that thread then moves all transfers itself. */
struct plait_engine;

enum plait_moved { PLAIT_STUCK, PLAIT_MOVED, PLAIT_DONE };

/* One transfer under way. The caller fills in advance() and keeps the job
 * where it is until plait_engine_wait() has returned. */
struct plait_job {
    /* Move what can be moved now, a few hundred KiB at most. Called by one
     * thread at a time, for the jobs in the order they were started. */
    enum plait_moved (*advance)(struct plait_job *job);
    /* NULL, or how to wait where nothing moves: doze() is called as advance()
     * is, and what moves this job after it ends rest(), which is called by the
     * waiting thread alone, or rest() ends by itself within a millisecond, in
     * which other jobs may have come to move. False: idle() is better now. */
    bool (*doze)(struct plait_job *job);
    void (*rest)(struct plait_job *job);
    /* the engine's: */
    struct plait_job *next;
    bool done;
    double begun, ended; /* first and last moved, by plait_trace_now() */
};

/* idle(arg) is called from time to time by a thread that found nothing to move;
 * it must be thread-safe. `threaded` false: no thread is made, jobs move in
 * waits alone. NULL with errno. */
struct plait_engine *plait_engine_create(bool threaded, void (*idle)(void *arg),
                                         void *arg);
/* From here on, this process shares its cores with others that wait for it. */
void plait_engine_share(struct plait_engine *engine);
/* No job may be under way. NULL-safe. */
void plait_engine_destroy(struct plait_engine *engine);

void plait_engine_start(struct plait_engine *engine, struct plait_job *job);
/* Until the job is done. */
void plait_engine_wait(struct plait_engine *engine, struct plait_job *job);
/* Start and wait, without waking the engine's thread. */
void plait_engine_run(struct plait_engine *engine, struct plait_job *job);
/* Until no job is under way: when nothing can be in the way of any. */
void plait_engine_settle(struct plait_engine *engine);
/* One round over all jobs, unless another thread is in one. */
void plait_engine_poke(struct plait_engine *engine);
/* call(arg), while no job moves. */
void plait_engine_call(struct plait_engine *engine, void (*call)(void *arg),
                       void *arg);

#endif
