/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/members.h"
#include "runtime/train/watchdog/watchdog_private.h"
#include "topology/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* All ranks notice a hang at the same time. Each notes what it is blocked in
 * and gives the others NOTE_S to do the same. Then one rank reports and ends
 * the run: the lowest one of the first node that is alive. If it cannot, that
 * of another node reports PLAIT_WATCHDOG_OTHER_NODE_S later, and any rank that
 * is left OTHERS_S later. */
#define NOTE_S 0.6
#define LATE_S 0.6 /* where a lower rank of the node seems not to run */
#define OTHERS_S 3.0
/* Seconds that the abort itself may take. */
#define ABORT_LIMIT_S 1
/* How often the thread looks. Where more than STOPPED_S went by, the whole
 * process was stopped, as by a suspended job. */
#define LOOK_NS 200000000
#define STOPPED_S 5
#define FEWEST 5
/* After this part of the limit, another rank that began the step earlier may
 * have noticed a hang already. LEAVE_S: how long a process may take to return
 * from what it does when the others go on without it. */
#define NEARLY 0.8
#define LEAVE_S 90
/* Seconds for all ranks to learn that the run is over, before one leaves. */
#define HEAR_S 0.5
/* Nothing may stand still for longer before the configuration is known. */
#define PHASE_S 600

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double plait_watchdog_limit(const double *seconds, int n)
{
    double sorted[PLAIT_WATCHDOG_TIMES], limit;

    if (n < FEWEST || n > PLAIT_WATCHDOG_TIMES)
        return 0;
    memcpy(sorted, seconds, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), by_size);
    limit = 20 * sorted[n / 2];
    return limit < 60 ? 60 : limit;
}

void plait_watchdog_say(const char *line)
{
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (poll(&err, 1, 500) == 1 && err.revents & POLLOUT &&
        write(STDERR_FILENO, line, strlen(line)) < 0)
        return;
}

static void pause_for(double seconds)
{
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};

    nanosleep(&t, NULL);
}

static void leave_for_good(struct plait_watchdog *dog)
{
    plait_comm_kill_node(dog->world);
    alarm(ABORT_LIMIT_S);
    plait_comm_abort(dog->world);
    _exit(1);
}

void plait_watchdog_leave(struct plait_watchdog *dog)
{
    if (!dog->spare)
        leave_for_good(dog);
    dog->given = plait_clock_now();
    plait_comm_break(dog->world);
}

/* Others may not hear of it but from this rank. */
void plait_watchdog_end_all(struct plait_watchdog *dog)
{
    plait_hang_tell_over(dog->hang);
    pause_for(HEAR_S);
    leave_for_good(dog);
}

/* A configured limit holds for all that happens from the first step on, a
 * learned one only within steps; 0: there is none now. */
static double limit_now(const struct plait_watchdog *dog)
{
    if (dog->stage)
        return dog->seconds > 0 ? dog->seconds : 0;
    if (dog->step == 0 || (dog->seconds < 0 && !dog->stepping))
        return 0;
    return dog->limit;
}

/* End the process if its training thread has not returned from a disk or a
 * computation. */
static void leave_late(const struct plait_watchdog *dog, double now)
{
    char where[100], line[200];

    if (now - dog->given < LEAVE_S)
        return;
    plait_hang_where(dog->hang, plait_comm_rank(dog->world), where,
                     sizeof(where));
    snprintf(line, sizeof(line),
             "plait-train: rank %d (%s) hangs, and the others go on without "
             "it; it ends\n",
             plait_comm_rank(dog->world), where);
    plait_watchdog_say(line);
    _exit(1);
}

/* The other nodes have ended while this rank could not listen, or its node was
 * cut off meanwhile. */
static void leave_alone(struct plait_watchdog *dog, double now)
{
    char line[200];

    snprintf(line, sizeof(line),
             "plait-train: rank %d was stopped, and no other node has been "
             "heard of in the %.0f s since: it ends\n",
             plait_comm_rank(dog->world), now - dog->woken);
    if (!plait_hang_told(dog->hang)) {
        plait_watchdog_say(line);
        plait_hang_tell_here(dog->hang);
    }
    plait_watchdog_leave(dog);
}

bool plait_watchdog_is_left(const struct plait_watchdog *dog)
{
    return dog->spare && plait_comm_look(plait_comm_of_hosts(dog->world));
}

static void end_run(struct plait_watchdog *dog)
{
    char why[700], line[1000], what[64];

    if (plait_watchdog_is_left(dog) || plait_hang_told(dog->hang)) {
        plait_watchdog_leave(dog);
        return;
    }
    snprintf(what, sizeof(what), "step %lld", (long long)dog->step);
    plait_hang_explain(dog->hang, why, sizeof(why));
    snprintf(line, sizeof(line),
             "plait-train: %s has not ended for %.0f s "
             "(train.timeout%s): %s; %s\n",
             dog->stage ? dog->stage : what, limit_now(dog),
             dog->seconds < 0 ? " auto" : "", why,
             dog->spare ? "going on without the ranks that do not answer"
                        : "ended");
    plait_watchdog_say(line);
    if (!dog->spare)
        plait_hang_tell(dog->hang);
    plait_watchdog_leave(dog);
}

double plait_watchdog_delay(const struct plait_watchdog *dog)
{
    if (!plait_hang_speaks(dog->hang))
        return NOTE_S + OTHERS_S;
    return NOTE_S + (plait_hang_is_lowest(dog->hang) ? 0 : LATE_S) +
           (plait_hang_is_first_node(dog->hang) ? 0
                                                : PLAIT_WATCHDOG_OTHER_NODE_S);
}

static void look_once(struct plait_watchdog *dog, double now)
{
    double limit = limit_now(dog), over = now - dog->since - limit;

    plait_hang_alive(dog->hang);
    if (plait_hang_over(dog->hang))
        plait_watchdog_end_all(dog);
    if (dog->given > 0) {
        leave_late(dog, now);
        return;
    }
    if (plait_hang_ended(dog->hang)) {
        plait_watchdog_leave(dog);
        return;
    }
    if (dog->woken > 0 && plait_hang_is_left(dog->hang, now - dog->woken)) {
        leave_alone(dog, now);
        return;
    }
    if (limit <= 0 || over < 0)
        return;
    if (!dog->noted)
        plait_hang_note(dog->hang);
    dog->noted = true;
    if (over >= plait_watchdog_delay(dog))
        end_run(dog);
}

static void wait_a_little(struct plait_watchdog *dog)
{
    const struct timespec at = plait_clock_in(CLOCK_MONOTONIC, LOOK_NS);

    pthread_cond_timedwait(&dog->wake, &dog->lock, &at);
}

static void *watch_steps(void *arg)
{
    struct plait_watchdog *dog = arg;
    double last = plait_clock_now(), now;

    pthread_mutex_lock(&dog->lock);
    while (!dog->leave) {
        now = plait_clock_now();
        if (now - last > STOPPED_S) {
            dog->since += now - last;
            dog->woken = now;
            plait_hang_moved(dog->hang);
        }
        last = now;
        look_once(dog, now);
        pthread_mutex_unlock(&dog->lock);
        plait_watchdog_judge(dog, now);
        pthread_mutex_lock(&dog->lock);
        wait_a_little(dog);
    }
    pthread_mutex_unlock(&dog->lock);
    return NULL;
}

/* The condition waits on the clock that times are read from; signals are left
 * to the thread that trains. */
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
    dog->since = plait_clock_now();
    sigfillset(&all);
    sigdelset(&all, SIGALRM); /* alarm() of leave_for_good() */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(&dog->thread, NULL, watch_steps, dog);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return number;
}

struct plait_watchdog *plait_watchdog_create(struct plait_comm *world,
                                             struct plait_hang *hang,
                                             struct plait_error *err)
{
    struct plait_watchdog *dog = calloc(1, sizeof(*dog));
    int number;

    if (!dog) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    dog->world = world;
    dog->hang = hang;
    dog->phase = PHASE_S;
    plait_hang_listen(hang); /* before the thread, which asks what is heard */
    number = start_thread(dog);
    if (number == 0)
        return dog;
    plait_errorf(err,
                 "cannot start the thread that watches the other ranks: %s",
                 strerror(number));
    free(dog);
    errno = number;
    return NULL;
}

void plait_watchdog_limit_steps(struct plait_watchdog *dog, int seconds,
                                double growth)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->seconds = seconds;
    dog->growth = growth;
    dog->limit = seconds > 0 ? seconds : 0;
    pthread_mutex_unlock(&dog->lock);
}

void plait_watchdog_limit_phases(struct plait_watchdog *dog, int seconds)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->phase = seconds;
    pthread_mutex_unlock(&dog->lock);
}

void plait_watchdog_finish(struct plait_watchdog *dog)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->stage = NULL;
    dog->step = 0;
    dog->stepping = dog->noted = false;
    dog->given = 0;
    pthread_mutex_unlock(&dog->lock);
}

void plait_watchdog_spare(struct plait_watchdog *dog)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->spare = true;
    pthread_mutex_unlock(&dog->lock);
}

bool plait_watchdog_hung(struct plait_watchdog *dog)
{
    double limit;
    bool hung;

    if (!dog)
        return false;
    pthread_mutex_lock(&dog->lock);
    limit = limit_now(dog);
    hung = dog->given > 0 ||
           (limit > 0 && plait_clock_now() - dog->since > NEARLY * limit);
    pthread_mutex_unlock(&dog->lock);
    return hung;
}

void plait_watchdog_stage(struct plait_watchdog *dog, const char *what)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->since = plait_clock_now();
    dog->stage = what;
    dog->noted = false;
    pthread_mutex_unlock(&dog->lock);
}

void plait_watchdog_begin(struct plait_watchdog *dog, int64_t step)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->since = plait_clock_now();
    dog->stage = NULL;
    dog->step = step;
    dog->stepping = true;
    dog->noted = false;
    pthread_mutex_unlock(&dog->lock);
}

void plait_watchdog_end(struct plait_watchdog *dog)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->times[dog->next] = plait_clock_now() - dog->since;
    dog->next = (dog->next + 1) % PLAIT_WATCHDOG_TIMES;
    dog->ntimes += dog->ntimes < PLAIT_WATCHDOG_TIMES;
    if (dog->seconds < 0)
        dog->limit =
            dog->growth * plait_watchdog_limit(dog->times, dog->ntimes);
    dog->stepping = false;
    dog->woken = 0;
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
