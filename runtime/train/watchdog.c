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
/* The thread looks once a second. Where more than this many went by, the whole
 * process was stopped, as by a suspended job. */
#define STOPPED_S 5
#define TIMES 63 /* steps that the median is of */
#define FEWEST 5

struct plait_watchdog {
    const struct plait_mesh *mesh;
    int seconds; /* or PLAIT_WATCHDOG_AUTO */
    double growth;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock. */
    double since;        /* when the step began */
    double times[TIMES]; /* of steps, the last ones */
    int ntimes, next;
    double limit; /* 0: none */
    int64_t step;
    bool stepping, leave;
};

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double plait_watchdog_limit(const double *seconds, int n)
{
    double sorted[TIMES], limit;

    if (n < FEWEST || n > TIMES)
        return 0;
    memcpy(sorted, seconds, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), by_size);
    limit = 20 * sorted[n / 2];
    return limit < 60 ? 60 : limit;
}

/* What this rank waits in, as far as its host knows. */
static void describe_wait(const struct plait_watchdog *dog, char *text,
                          size_t size)
{
    const struct plait_mesh *mesh = dog->mesh;

    for (int i = 0; i < PLAIT_NCOMMS; i++) {
        const struct plait_comm *comm = plait_mesh_comm(mesh, i);

        if (comm && plait_comm_doing(comm, text, size))
            return;
    }
    if (!plait_comm_doing(mesh->world, text, size))
        snprintf(text, size, "no transfer: in its own work or its device's");
}

static void end_run(const struct plait_watchdog *dog)
{
    struct plait_comm *world = dog->mesh->world;
    char host[64] = "", wait[160];

    gethostname(host, sizeof(host) - 1);
    describe_wait(dog, wait, sizeof(wait));
    fprintf(stderr,
            "plait-train: rank %d (%s): step %lld has not ended for %.0f s "
            "(train.timeout%s): some rank hangs; this one waits in %s; ended\n",
            plait_comm_rank(world), host, (long long)dog->step, dog->limit,
            dog->seconds < 0 ? " auto" : "", wait);
    alarm(ABORT_LIMIT_S);
    plait_comm_abort(world);
    _exit(1);
}

/* When this rank reports a hang unless the step ends before. */
static double report_time(const struct plait_watchdog *dog)
{
    int rank = plait_comm_rank(dog->mesh->world);

    return dog->since + dog->limit + (rank < MAX_DELAY_S ? rank : MAX_DELAY_S);
}

/* A limit that was given holds for all that happens, a learned one in steps. */
static bool is_over(const struct plait_watchdog *dog, double now)
{
    if (dog->limit <= 0 || (dog->seconds < 0 && !dog->stepping))
        return false;
    return now >= report_time(dog);
}

static void wait_second(struct plait_watchdog *dog)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec++;
    pthread_cond_timedwait(&dog->wake, &dog->lock, &at);
}

static void *watch_steps(void *arg)
{
    struct plait_watchdog *dog = arg;
    double last = seconds_now(), now;

    pthread_mutex_lock(&dog->lock);
    while (!dog->leave) {
        now = seconds_now();
        if (now - last > STOPPED_S)
            dog->since += now - last;
        last = now;
        if (is_over(dog, now))
            end_run(dog);
        wait_second(dog);
    }
    pthread_mutex_unlock(&dog->lock);
    return NULL;
}

/* Waits on the clock that times are read from; signals are left to the
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
    dog->since = seconds_now();
    sigfillset(&all);
    sigdelset(&all, SIGALRM); /* of end_run() */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(&dog->thread, NULL, watch_steps, dog);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return number;
}

struct plait_watchdog *plait_watchdog_create(const struct plait_mesh *mesh,
                                             int seconds, double growth,
                                             struct plait_error *err)
{
    struct plait_watchdog *dog = calloc(1, sizeof(*dog));
    int number;

    if (!dog) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    dog->mesh = mesh;
    dog->seconds = seconds;
    dog->growth = growth;
    dog->limit = seconds > 0 ? seconds : 0;
    number = start_thread(dog);
    if (number == 0)
        return dog;
    plait_errorf(err, "train.timeout: no thread to keep it: %s",
                 strerror(number));
    free(dog);
    errno = number;
    return NULL;
}

void plait_watchdog_begin(struct plait_watchdog *dog, int64_t step)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->since = seconds_now();
    dog->step = step;
    dog->stepping = true;
    pthread_mutex_unlock(&dog->lock);
}

void plait_watchdog_end(struct plait_watchdog *dog)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->times[dog->next] = seconds_now() - dog->since;
    dog->next = (dog->next + 1) % TIMES;
    dog->ntimes += dog->ntimes < TIMES;
    if (dog->seconds < 0)
        dog->limit =
            dog->growth * plait_watchdog_limit(dog->times, dog->ntimes);
    dog->stepping = false;
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
