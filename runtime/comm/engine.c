/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/engine.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/comm/slice.h"
#include "runtime/comm/trace.h"
#include "topology/base/thread.h"

/* Rounds in which nothing moved before the thread lets others have the core:
 * fewer after waits that took longer anyway, as they do where ranks share
 * cores, more again after waits that took no longer than the rounds do. */
#define SPINS 500
#define LEAST_SPINS 16
#define SPUN_S 5e-4
/* How long the thread sleeps when nothing moved: short enough for the peers
 * that wait, long enough to leave the core to the computation. */
#define SHORTEST_NAP 20000 /* ns */
#define LONGEST_NAP 500000
/* Where ranks share cores it takes them from one that computes, and nobody
 * spins for what it would move. */
#define SHARED_NAP 1000000

struct plait_engine {
    void (*idle)(void *arg);
    void *arg;
    pthread_mutex_t lock; /* of all below, and held while jobs advance */
    pthread_cond_t work;
    struct plait_job *first, **end;
    _Atomic int waiting; /* threads in a wait: the engine's stays out */
    int spins;           /* LEAST_SPINS .. SPINS */
    bool shared;         /* ranks share cores */
    bool asleep;         /* the thread, until it is signalled */
    bool running, stop;
    pthread_t thread;
};

/* Whether anything moved. */
static bool advance_all(struct plait_engine *e)
{
    struct plait_job **at = &e->first, *job;
    bool moved = false;

    while ((job = *at) != NULL) {
        enum plait_moved now;
        double start = plait_trace_now();

        now = job->advance(job);
        if (now != PLAIT_STUCK) {
            moved = true;
            if (job->begun == 0)
                job->begun = start;
        }
        if (now != PLAIT_DONE) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        if (*at == NULL)
            e->end = at;
        job->ended = plait_trace_now();
        job->done = true;
    }
    return moved;
}

static void append_job(struct plait_engine *e, struct plait_job *job)
{
    job->next = NULL;
    job->done = false;
    job->begun = job->ended = 0;
    *e->end = job;
    e->end = &job->next;
}

/* -- the thread ---------------------------------------------------------- */

static void nap_for(long ns)
{
    const struct timespec t = {.tv_nsec = ns};

    nanosleep(&t, NULL);
}

static void *engine_thread(void *arg)
{
    struct plait_engine *e = arg;
    long ns = SHORTEST_NAP;

    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        if (e->first == NULL || (e->waiting > 0 && !e->shared)) {
            e->asleep = true;
            pthread_cond_wait(&e->work, &e->lock);
            e->asleep = false;
            ns = SHORTEST_NAP;
            continue;
        }
        if (e->waiting == 0 && advance_all(e)) {
            ns = SHORTEST_NAP;
            pthread_mutex_unlock(&e->lock);
        } else {
            pthread_mutex_unlock(&e->lock);
            if (!e->shared)
                e->idle(e->arg);
            nap_for(e->shared ? SHARED_NAP : ns);
            ns = 2 * ns < LONGEST_NAP ? 2 * ns : LONGEST_NAP;
        }
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* -- life ---------------------------------------------------------------- */

struct plait_engine *plait_engine_create(bool threaded, void (*idle)(void *arg),
                                         void *arg)
{
    struct plait_engine *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    plait_slice_shorten(); /* before there are other threads */
    e->idle = idle;
    e->arg = arg;
    e->end = &e->first;
    e->spins = SPINS;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    e->running =
        threaded && plait_thread_create(&e->thread, engine_thread, e) == 0;
    if (threaded && !e->running) {
        plait_engine_destroy(e);
        return NULL;
    }
    return e;
}

void plait_engine_destroy(struct plait_engine *e)
{
    int saved = errno;

    if (!e)
        return;
    if (e->running) {
        pthread_mutex_lock(&e->lock);
        e->stop = true;
        pthread_cond_signal(&e->work);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    free(e);
    errno = saved;
}

void plait_engine_share(struct plait_engine *e)
{
    e->shared = true;
    e->spins = 1;
}

/* -- what others call ---------------------------------------------------- */

/* The thread has something to move. */
static void wake_thread(struct plait_engine *e)
{
    if (e->asleep)
        pthread_cond_signal(&e->work);
}

/* What can be moved at once needs no thread. */
void plait_engine_start(struct plait_engine *e, struct plait_job *job)
{
    pthread_mutex_lock(&e->lock);
    append_job(e, job);
    if (e->shared)
        while (e->waiting == 0 && advance_all(e))
            ;
    if (e->first)
        wake_thread(e);
    pthread_mutex_unlock(&e->lock);
}

/* Nothing moves: let others have the core, with the lock held before and
 * after. */
static void let_others(struct plait_engine *e, struct plait_job *job)
{
    bool dozes = job->doze && job->doze(job);

    if (dozes && advance_all(e))
        return;
    pthread_mutex_unlock(&e->lock);
    if (dozes)
        job->rest(job);
    else
        e->idle(e->arg);
    if (!e->shared)
        sched_yield();
    pthread_mutex_lock(&e->lock);
}

/* After a wait. */
static void learn_spins(struct plait_engine *e, int spins, double stuck)
{
    if (e->shared || spins == 0)
        return;
    if (spins >= e->spins && plait_trace_now() - stuck > SPUN_S)
        e->spins = e->spins / 2 > LEAST_SPINS ? e->spins / 2 : LEAST_SPINS;
    else
        e->spins = e->spins * 2 < SPINS ? e->spins * 2 : SPINS;
}

/* With the lock held and counted in `waiting`. */
static void drive_job(struct plait_engine *e, struct plait_job *job)
{
    double stuck = 0;
    int spins = 0;

    while (!job->done) {
        if (advance_all(e)) {
            learn_spins(e, spins, stuck);
            spins = 0;
            continue;
        }
        if (spins++ == 0 && !e->shared)
            stuck = plait_trace_now();
        if (spins >= e->spins)
            let_others(e, job);
    }
}

static void leave_wait(struct plait_engine *e)
{
    if (--e->waiting == 0 && e->first)
        wake_thread(e);
    pthread_mutex_unlock(&e->lock);
}

void plait_engine_wait(struct plait_engine *e, struct plait_job *job)
{
    e->waiting++; /* before the lock, so that the thread lets go of it */
    pthread_mutex_lock(&e->lock);
    drive_job(e, job);
    leave_wait(e);
}

void plait_engine_run(struct plait_engine *e, struct plait_job *job)
{
    e->waiting++;
    pthread_mutex_lock(&e->lock);
    append_job(e, job);
    drive_job(e, job);
    leave_wait(e);
}

void plait_engine_poke(struct plait_engine *e)
{
    if (pthread_mutex_trylock(&e->lock) != 0)
        return;
    advance_all(e);
    pthread_mutex_unlock(&e->lock);
}

void plait_engine_call(struct plait_engine *e, void (*call)(void *arg),
                       void *arg)
{
    pthread_mutex_lock(&e->lock);
    call(arg);
    pthread_mutex_unlock(&e->lock);
}

void plait_engine_settle(struct plait_engine *e)
{
    e->waiting++;
    pthread_mutex_lock(&e->lock);
    while (e->first)
        advance_all(e);
    leave_wait(e);
}
