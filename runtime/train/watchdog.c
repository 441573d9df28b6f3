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

/* All ranks see that one hangs, at the same time: each gives those before it
 * a second each, of at most so many, to end the run for all. */
#define MOST_TURNS 64
/* Seconds that the end itself may take. */
#define LAST_WORDS 10

struct plait_watchdog {
    struct plait_comm *world;
    int seconds;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock. */
    struct timespec patted;
    bool leave;
};

static void end_run(const struct plait_watchdog *dog)
{
    fprintf(stderr,
            "plait-train: rank %d: no step has ended for %d s "
            "(train.timeout): some rank hangs; ended\n",
            plait_comm_rank(dog->world), dog->seconds);
    alarm(LAST_WORDS);
    plait_comm_abort(dog->world);
    _exit(1);
}

/* When it is this rank's turn to bark. */
static struct timespec turn(const struct plait_watchdog *dog)
{
    int rank = plait_comm_rank(dog->world);
    struct timespec at = dog->patted;

    at.tv_sec += dog->seconds + (rank < MOST_TURNS ? rank : MOST_TURNS);
    return at;
}

static bool is_over(struct timespec at)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > at.tv_sec ||
           (now.tv_sec == at.tv_sec && now.tv_nsec >= at.tv_nsec);
}

static void *watch(void *arg)
{
    struct plait_watchdog *dog = arg;
    struct timespec at;

    pthread_mutex_lock(&dog->lock);
    while (!dog->leave) {
        at = turn(dog);
        if (is_over(at))
            end_run(dog);
        pthread_cond_timedwait(&dog->wake, &dog->lock, &at);
    }
    pthread_mutex_unlock(&dog->lock);
    return NULL;
}

/* Its clock is the one of the pats; signals are for the thread that trains. */
static int start(struct plait_watchdog *dog)
{
    pthread_condattr_t clock;
    sigset_t all, before;
    int number;

    pthread_mutex_init(&dog->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&dog->wake, &clock);
    pthread_condattr_destroy(&clock);
    clock_gettime(CLOCK_MONOTONIC, &dog->patted);
    sigfillset(&all);
    sigdelset(&all, SIGALRM); /* of end_run() */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(&dog->thread, NULL, watch, dog);
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
    number = start(dog);
    if (number == 0)
        return dog;
    plait_errorf(err, "train.timeout: no thread to keep it: %s",
                 strerror(number));
    free(dog);
    errno = number;
    return NULL;
}

void plait_watchdog_pat(struct plait_watchdog *dog)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    clock_gettime(CLOCK_MONOTONIC, &dog->patted);
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
