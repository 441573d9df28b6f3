/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* All ranks notice a hang at the same time. Rank r waits r seconds longer, at
 * most this many, so that as a rule one rank reports it and ends the run. */
#define MAX_DELAY_S 64
/* Seconds that the abort itself may take. */
#define ABORT_LIMIT_S 10

struct plait_watchdog {
    struct plait_comm *world;
    int seconds;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock. */
    struct timespec last_reset;
    bool leave;
};

static void end_run(const struct plait_watchdog *dog)
{
    fprintf(stderr,
            "plait-train: rank %d: no step has ended for %d s "
            "(train.timeout): some rank hangs; ended\n",
            plait_comm_rank(dog->world), dog->seconds);
    alarm(ABORT_LIMIT_S);
    plait_comm_abort(dog->world);
    _exit(1);
}

/* When this rank reports a hang unless a step ends before. */
static struct timespec report_time(const struct plait_watchdog *dog)
{
    int rank = plait_comm_rank(dog->world);
    struct timespec at = dog->last_reset;

    at.tv_sec += dog->seconds + (rank < MAX_DELAY_S ? rank : MAX_DELAY_S);
    return at;
}

static bool is_over(struct timespec at)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > at.tv_sec ||
           (now.tv_sec == at.tv_sec && now.tv_nsec >= at.tv_nsec);
}

static void *watch_steps(void *arg)
{
    struct plait_watchdog *dog = arg;
    struct timespec at;

    pthread_mutex_lock(&dog->lock);
    while (!dog->leave) {
        at = report_time(dog);
        if (is_over(at))
            end_run(dog);
        pthread_cond_timedwait(&dog->wake, &dog->lock, &at);
    }
    pthread_mutex_unlock(&dog->lock);
    return NULL;
}

/* Waits on the clock that last_reset is read from; signals are left to the
 * thread that trains. */
static int start_thread(struct plait_watchdog *dog)
{
    pthread_condattr_t clock;
    sigset_t all, before;
    int number;

    pthread_mutex_init(&dog->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&dog->wake, &clock);
    pthread_condattr_destroy(&clock);
    clock_gettime(CLOCK_MONOTONIC, &dog->last_reset);
    sigfillset(&all);
    sigdelset(&all, SIGALRM); /* of end_run() */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(&dog->thread, NULL, watch_steps, dog);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return number;
}

struct plait_watchdog *plait_watchdog_create(struct plait_comm *world,
                                             int seconds,
                                             struct plait_error *err)
{
    struct plait_watchdog *dog = calloc(1, sizeof(*dog));
    int number;

    if (!dog) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    dog->world = world;
    dog->seconds = seconds;
    number = start_thread(dog);
    if (number == 0)
        return dog;
    plait_errorf(err, "train.timeout: no thread to keep it: %s",
                 strerror(number));
    free(dog);
    errno = number;
    return NULL;
}

void plait_watchdog_reset(struct plait_watchdog *dog)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    clock_gettime(CLOCK_MONOTONIC, &dog->last_reset);
    pthread_mutex_unlock(&dog->lock);
}

void plait_watchdog_destroy(struct plait_watchdog *dog)
{
    int saved = errno;

    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->leave = true;
    pthread_cond_signal(&dog->wake);
    pthread_mutex_unlock(&dog->lock);
    pthread_join(dog->thread, NULL);
    pthread_cond_destroy(&dog->wake);
    pthread_mutex_destroy(&dog->lock);
    free(dog);
    errno = saved;
}
