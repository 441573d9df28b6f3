/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs of a node or of an NVLink domain read each other's memory. That of a
 * process that dies is unmapped under the kernels of the others, whose contexts
 * are then gone, though not their processes: these begin anew. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/world_device.h"
#include "runtime/train/anew.h"
#include "runtime/train/carry.h"
#include "runtime/train/claims.h"
#include "runtime/train/elastic_private.h"
#include "runtime/train/watchdog/signals.h"
#include "topology/base/clock.h"

/* A process whose GPU fails before it has begun its steps, as others are gone
 * too, begins anew so often without a new step. */
enum { LIVES_MOST = 3 };
/* How long a rank whose GPU has failed waits for the news that another is gone:
 * the kernel unmaps its memory before it ends its connections. */
#define NEWS_S 5

void elastic_await_news(const struct plait_session *s)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    double until = plait_clock_now() + NEWS_S;
    struct plait_error ignored;

    if (s->elastic->alone || plait_comm_lost(s->world.all) ||
        plait_world_check_device(&s->world, &ignored) == 0)
        return;
    while (!plait_comm_look(s->world.all) && plait_clock_now() < until)
        nanosleep(&pause, NULL);
    s->elastic->alone = !plait_comm_lost(s->world.all);
}

/* Whether a process has ended whose memory this GPU may have read: of this
 * node, or of the NVLink domain that the plan says it is in. Its port closes at
 * about the time at which its connections end. */
static bool neighbour_ended(const struct plait_elastic *e,
                            const struct plait_members *m)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    const char *host = m->all[m->self].host;

    for (int tries = 0; tries < 10; tries++) {
        for (int i = 0; i < m->n; i++) {
            int number = m->present[i];

            if (number != m->self &&
                (e->launch.domain || !strcmp(m->all[number].host, host)) &&
                plait_members_probe(m, number) != 1)
                return true;
        }
        nanosleep(&pause, NULL);
    }
    return false;
}

/* A fault of this rank's own comes again in the next life as it repeats its
 * steps. */
static int may_begin(struct plait_elastic *e, const struct plait_members *m,
                     const char *why, struct plait_error *err)
{
    if (e->lives == LIVES_MOST || (e->lives > 0 && e->begun))
        return plait_errorf(err,
                            "%s; its process has begun anew without a new "
                            "step; this rank ends",
                            why);
    if (!neighbour_ended(e, m))
        return plait_errorf(err,
                            "%s, and no process has ended whose memory it "
                            "may have read; this rank ends",
                            why);
    e->lives++;
    return 0;
}

/* Nothing is taken back from the GPU, where that could hang. Returns on failure
 * alone: -1 with err. */
static int run_again(struct plait_session *s, const struct plait_members *m,
                     char *const *argv, struct plait_error *err)
{
    struct plait_elastic *e = s->elastic;
    int fd;

    plait_anew_limit(ELASTIC_ANEW_S);
    plait_signals_hold(true);
    fd = plait_carry_write(e, m, err);
    if (fd >= 0) {
        plait_claims_hold(s->claims, e);
        if (plait_carry_finish(fd, e, err) == 0) {
            int keep[3] = {m->listener, e->held[0], e->held[1]};

            plait_anew(argv, fd, keep, 1 + e->nheld, err);
        }
        plait_claims_unhold(s->claims, e);
    }
    plait_signals_hold(false);
    return -1;
}

/* The context of w's GPU is gone, as err says: this process begins anew.
 * Returns on failure alone: -1 with err. */
static int begin_anew(struct plait_session *s, const struct plait_world *w,
                      const struct plait_train_args *args,
                      struct plait_error *err)
{
    struct plait_elastic *e = s->elastic;
    struct plait_error why = *err;

    if (may_begin(e, w->members, why.text, err) < 0)
        return -1;
    fprintf(stderr, "plait-train: rank %d: %s; its process %d begins anew\n",
            w->members->rank, why.text, (int)getpid());
    memcpy(e->busid, w->gpu.busid, sizeof(e->busid));
    run_again(s, w->members, args->argv, err);
    why = *err;
    return plait_errorf(err,
                        "its process cannot begin anew: %s; this rank "
                        "ends",
                        why.text);
}

int elastic_ask_device(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err)
{
    if (plait_world_check_device(&s->world, err) == 0)
        return 0;
    /* The others learn it, and the copies may take long. */
    plait_watchdog_destroy(s->dog);
    s->dog = NULL;
    if (s->world.all)
        plait_comm_break(s->world.all);
    return begin_anew(s, &s->world, args, err);
}

int elastic_check_device(struct plait_session *s, struct plait_world *kept,
                         const struct plait_train_args *args,
                         struct plait_error *err)
{
    struct plait_elastic *e = s->elastic;

    if (!e->anew)
        return plait_world_check_device(kept, err) == 0
                   ? 0
                   : begin_anew(s, kept, args, err);
    e->anew = false;
    kept->launch = e->launch;
    kept->planned = true;
    memcpy(kept->gpu.busid, e->busid, sizeof(kept->gpu.busid));
    if (plait_world_choose(kept, "cuda", err) < 0) {
        plait_error_prefix(err, "a process that has begun anew cannot use its "
                                "GPU, and this rank ends: ");
        return -1;
    }
    plait_anew_limit(0);
    return 0;
}

int plait_elastic_resume(struct plait_session *s, struct plait_elastic *e,
                         int fd, struct plait_error *err)
{
    if (plait_carry_read(fd, e, &s->world.members, err) < 0)
        return -1;
    plait_claims_go_on(e);
    e->anew = true;
    e->begun = false;
    s->elastic = e;
    return -1;
}
