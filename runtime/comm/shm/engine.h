/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SHM_ENGINE_H
#define PLAIT_RUNTIME_COMM_SHM_ENGINE_H

#include <stdbool.h>

/* Moves transfers while the process computes. It is one thread, which sleeps
 * when there is nothing to move and while another thread waits for a transfer:
 * that one then moves all transfers itself. */
struct plait_engine;

enum plait_moved { PLAIT_STUCK, PLAIT_MOVED, PLAIT_DONE };

/* A transfer under way. The caller fills in advance() and must not move the job
 * in memory until plait_engine_wait() has returned. */
struct plait_engine_job {
    /* Moves what can be moved now, a few hundred KiB at most. Called by one
     * thread at a time, for the jobs in the order in which they were
     * started. */
    enum plait_moved (*advance)(struct plait_engine_job *job);
    /* How a thread waits where nothing moves; NULL: by idle(). doze() is called
     * like advance(); false: use idle() now. Anything that could move the job
     * after doze() must end rest(), which the waiting thread calls. rest() also
     * returns by itself within a millisecond, as other jobs may have become
     * movable. */
    bool (*doze)(struct plait_engine_job *job);
    void (*rest)(struct plait_engine_job *job);
    /* set by the engine: */
    struct plait_engine_job *next;
    bool done;
    double begun, ended; /* first and last moved, by plait_clock_now() */
};

/* idle(arg) is called from time to time by a thread that has found nothing to
 * move; it must be thread-safe. threaded false: no thread is started, and jobs
 * move only in waits. NULL with errno. */
struct plait_engine *plait_engine_create(bool threaded, void (*idle)(void *arg),
                                         void *arg);
/* Whether it has a thread. */
bool plait_engine_is_threaded(const struct plait_engine *engine);
/* Tells the engine that this process shares its cores with others that wait for
 * it. */
void plait_engine_share(struct plait_engine *engine);
/* No job may be under way. `engine` may be NULL. */
void plait_engine_destroy(struct plait_engine *engine);

void plait_engine_start(struct plait_engine *engine,
                        struct plait_engine_job *job);
/* Waits until the job is done. */
void plait_engine_wait(struct plait_engine *engine,
                       struct plait_engine_job *job);
/* Start and wait, without waking the engine's thread. */
void plait_engine_run(struct plait_engine *engine,
                      struct plait_engine_job *job);
/* Waits until no job is under way. For after a failure, when nothing can hold
 * up a job any more. */
void plait_engine_settle(struct plait_engine *engine);
/* Advances all jobs once, unless another thread is doing so. */
void plait_engine_poke(struct plait_engine *engine);
/* Calls call(arg) while no job is being advanced; not at all if another thread
 * is advancing them, so that a thread that watches the others never waits for
 * one that is held up. */
void plait_engine_call(struct plait_engine *engine, void (*call)(void *arg),
                       void *arg);

#endif
