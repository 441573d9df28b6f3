/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/shm/engine.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/comm/shm/slice.h"
#include "topology/base/clock.h"
#include "topology/base/thread.h"

/* How long a waiting thread looks for something to move before it lets others
 * have the core: as long as a nap costs, with the timer's slack and the wake.
 * Less after waits that took far longer anyway, as they do where ranks share
 * cores; more again after short ones. */
#define PATIENCE_MOST_S 1e-4
#define LEAST_PATIENCE_S 3e-6
#define FAR_LONGER_S 5e-4
/* How long the thread sleeps when nothing moved: short enough for peers that
 * wait, long enough to leave the core to the computation. */
#define SHORTEST_NAP 20000 /* ns */
#define LONGEST_NAP 2000000
/* Where ranks share cores, the thread takes the core from a rank that computes,
 * and no peer spins for what it would move: it sleeps longer. */
#define SHARED_NAP 1000000
/* Waking the thread was useless if its jobs are waited for this soon. Then the
 * next wake comes later, and the thread looks by itself at the end of that
 * time. Ranks of a small model start some 20,000 transfers a second; a wake for
 * each costs more than it moves. Besides, beside a process that wakes threads
 * or yields that often on several cores, Linux 6.18 lets other groups of
 * processes starve for seconds (seen with its autogroups). */
#define TOO_SOON_S 5e-4
#define SHORTEST_GAP_S 1e-3
#define LONGEST_GAP_S 16e-3

struct plait_engine {
    void (*idle)(void *arg);
    void *arg;
    pthread_mutex_t lock; /* of all below; held while jobs advance */
    pthread_cond_t work;
    struct plait_engine_job *first, **end;
    _Atomic int waiting; /* threads in a wait: the engine's keeps out */
    double patience;     /* seconds; 0 where ranks share cores */
    bool shared;         /* ranks share cores */
    bool asleep;         /* the thread, until it is signalled */
    double woken, gap;   /* time of the last wake; none before woken + gap */
    bool judged;         /* gap was adapted to that wake */
    bool running, stop;
    pthread_t thread;
};

/* Returns whether anything moved. */
static bool advance_all(struct plait_engine *e)
{
    struct plait_engine_job **at = &e->first, *job;
    bool moved = false;

    while ((job = *at) != NULL) {
        enum plait_moved now;
        double start = plait_clock_now();

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
        job->ended = plait_clock_now();
        job->done = true;
    }
    return moved;
}

static void append_job(struct plait_engine *e, struct plait_engine_job *job)
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

/* With the lock held: sleep until a signal or, if wakes are held back until
 * woken + gap, until then at the latest. */
static void sleep_thread(struct plait_engine *e)
{
    double until = e->woken + e->gap;
    struct timespec t = {.tv_sec = (time_t)until};

    t.tv_nsec = (long)((until - (double)t.tv_sec) * 1e9);
    e->asleep = true;
    if (plait_clock_now() < until)
        pthread_cond_timedwait(&e->work, &e->lock, &t);
    else
        pthread_cond_wait(&e->work, &e->lock);
    e->asleep = false;
}

static void *engine_thread(void *arg)
{
    struct plait_engine *e = arg;
    long ns = SHORTEST_NAP;

    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        if (e->first == NULL || (e->waiting > 0 && !e->shared)) {
            sleep_thread(e);
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
    pthread_condattr_t clock;

    if (!e)
        return NULL;
    plait_slice_shorten(); /* before any other thread is started */
    e->idle = idle;
    e->arg = arg;
    e->end = &e->first;
    e->patience = PATIENCE_MOST_S;
    e->gap = SHORTEST_GAP_S;
    e->judged = true;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&e->work, &clock);
    pthread_condattr_destroy(&clock);
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

bool plait_engine_is_threaded(const struct plait_engine *e)
{
    return e->running;
}

void plait_engine_share(struct plait_engine *e)
{
    e->shared = true;
    e->patience = 0;
}

/* -- what others call ---------------------------------------------------- */

/* Tell the thread that there is something to move. */
static void wake_thread(struct plait_engine *e)
{
    double now = plait_clock_now();

    if (!e->asleep || now - e->woken < e->gap)
        return;
    e->woken = now;
    e->judged = false;
    pthread_cond_signal(&e->work);
}

/* A wait begins: adapt the gap between wakes. The lock is held. Not where ranks
 * share cores: there the thread moves what peers wait for while this rank
 * computes. */
static void learn_gap(struct plait_engine *e)
{
    if (e->judged || e->shared)
        return;
    e->judged = true;
    if (plait_clock_now() - e->woken >= TOO_SOON_S)
        e->gap = SHORTEST_GAP_S;
    else if (e->gap < LONGEST_GAP_S)
        e->gap *= 2;
}

/* Where ranks share cores, move at once what needs no thread. */
void plait_engine_start(struct plait_engine *e, struct plait_engine_job *job)
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

/* How long a thread that has waited since `stuck` naps: an eighth of that time,
 * as shorter naps wake it too often (see TOO_SOON_S). */
static long nap_in_wait(double stuck)
{
    long ns = (long)((plait_clock_now() - stuck) * (1e9 / 8));

    if (ns < SHORTEST_NAP)
        return SHORTEST_NAP;
    return ns < LONGEST_NAP ? ns : LONGEST_NAP;
}

/* Nothing has moved since `stuck`: let others have the core. The lock is held
 * before and after. */
static void let_others(struct plait_engine *e, struct plait_engine_job *job,
                       double stuck)
{
    bool dozes = job->doze && job->doze(job);

    if (dozes && advance_all(e))
        return;
    pthread_mutex_unlock(&e->lock);
    if (dozes) {
        job->rest(job);
    } else {
        e->idle(e->arg);
        nap_for(nap_in_wait(stuck));
    }
    pthread_mutex_lock(&e->lock);
}

/* A wait of so many seconds is over: adapt the patience. */
static void learn_patience(struct plait_engine *e, double waited)
{
    if (e->shared)
        return;
    if (waited > FAR_LONGER_S)
        e->patience = fmax(e->patience / 2, LEAST_PATIENCE_S);
    else
        e->patience = fmin(e->patience * 2, PATIENCE_MOST_S);
}

/* Advance all jobs until this one is done. The lock is held and the thread is
 * counted in `waiting`. */
static void drive_job(struct plait_engine *e, struct plait_engine_job *job)
{
    double stuck = 0; /* since when; 0: it is not */

    learn_gap(e);
    while (!job->done) {
        double now;

        if (advance_all(e)) {
            if (stuck > 0)
                learn_patience(e, plait_clock_now() - stuck);
            stuck = 0;
            continue;
        }
        now = plait_clock_now();
        if (stuck == 0)
            stuck = now;
        if (now - stuck >= e->patience)
            let_others(e, job, stuck);
    }
}

static void leave_wait(struct plait_engine *e)
{
    if (--e->waiting == 0 && e->first)
        wake_thread(e);
    pthread_mutex_unlock(&e->lock);
}

void plait_engine_wait(struct plait_engine *e, struct plait_engine_job *job)
{
    e->waiting++; /* before the lock, so that the engine's thread releases it */
    pthread_mutex_lock(&e->lock);
    drive_job(e, job);
    leave_wait(e);
}

void plait_engine_run(struct plait_engine *e, struct plait_engine_job *job)
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
    /* Where ranks share cores, jobs tell others only when nothing moves. */
    while (advance_all(e) && e->shared)
        ;
    pthread_mutex_unlock(&e->lock);
}

void plait_engine_call(struct plait_engine *e, void (*call)(void *arg),
                       void *arg)
{
    if (pthread_mutex_trylock(&e->lock) != 0)
        return;
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
