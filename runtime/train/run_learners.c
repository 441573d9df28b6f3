/* SPDX-License-Identifier: Apache-2.0 */
/* sync.learners auto: before the first step, try each number of learners for a
 * few steps whose result is thrown away.
 *
 * Each trial has a trainer of its own, with fresh weights, as the number of
 * learners decides how much memory a trainer has. All ranks must try the same
 * numbers: a trial's time is that of the slowest rank, by a maximum over the
 * world, and whether there was memory for it is agreed on. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/comm/consensus.h"
#include "runtime/optim/learners.h"
#include "runtime/train/resume.h"
#include "runtime/train/run_private.h"
#include "runtime/train/watchdog/signals.h"
#include "topology/base/clock.h"

#define WARM_STEPS 2
#define STEPS 5 /* fewest in a round, else those between two meetings */
#define STEPS_MOST 20
#define SECONDS 0.3 /* at least, that a trial measures */

/* *seconds: the time of n steps from *step on, that of the slowest rank, so
 * that all ranks decide alike. */
static int time_steps(struct run *r, struct plait_trainer *t, int64_t *step,
                      int n, double *seconds, struct plait_error *err)
{
    double begin = plait_clock_now();
    struct plait_step_result result;

    for (int i = 0; i < n; i++) {
        int64_t number = (*step)++ % r->config->train.steps;

        if (plait_trainer_step(t, number, 0, &result, err) < 0)
            return -1;
    }
    *seconds = plait_clock_now() - begin;
    return plait_comm_host_all_reduce(r->world, seconds, 1, PLAIT_MAX);
}

/* Samples a second. */
static int measure(struct run *r, struct plait_trainer *t, double *rate,
                   struct plait_error *err)
{
    int64_t h = plait_sync_steps(&r->config->sync), step = 0, steps = 0;
    double seconds = 0, more;
    int round = (int)(h < STEPS ? STEPS : h > STEPS_MOST ? STEPS_MOST : h);

    if (time_steps(r, t, &step, WARM_STEPS, &more, err) < 0)
        return PLAIT_RUN_BROKEN;
    while (seconds < SECONDS) {
        if (time_steps(r, t, &step, round, &more, err) < 0)
            return PLAIT_RUN_BROKEN;
        seconds += more;
        steps += round;
    }
    *rate = (double)steps * r->config->train.global_batch / seconds;
    return 0;
}

static void set_count(struct run *r, int batch, int count)
{
    r->s->config->sync.learners = count;
    r->s->config->train.global_batch = batch * count;
}

/* A trainer with fresh weights, at the first sample. Where there is no memory
 * for so many learners, all ranks return -1. */
static int open_trial(struct run *r, struct plait_trainer **t,
                      struct plait_error *err)
{
    struct plait_activity a;
    int rc;

    *t = plait_trainer_create(r->config, r->s->mesh, err);
    if (plait_error_consensus(r->world, *t ? 0 : -1, err) < 0)
        return -1;
    if (plait_error_consensus(r->world,
                              plait_optim_init(plait_trainer_optim(*t),
                                               r->config->train.seed, err),
                              err) < 0)
        return -1;
    a = plait_activity_begin(
        &r->s->mesh->listeners,
        &(struct plait_doing){.stage = "opening the data"});
    rc = plait_error_consensus(r->world, plait_trainer_open_data(*t, err), err);
    plait_activity_end(&a);
    return rc;
}

static int search(struct run *r, int batch, struct plait_error *err)
{
    struct plait_learner_search search = {0};
    bool more = true;
    double rate;
    int rc = 0;

    while (more && rc == 0) {
        struct plait_trainer *t = NULL;

        set_count(r, batch, search.tried + 1);
        rc = open_trial(r, &t, err);
        if (rc == 0)
            rc = measure(r, t, &rate, err);
        else if (search.tried > 0) {
            err->text[0] = '\0';
            rc = 0;
            rate = 0;
        }
        /* a broken communicator may still use it: not freed */
        if (rc != PLAIT_RUN_BROKEN)
            plait_trainer_destroy(t);
        if (rc == 0)
            more = plait_learner_search_add(&search, rate, batch);
        if (rc == 0 && plait_comm_rank(r->world) == 0)
            printf("sync.learners auto: %d: %.4g samples/s\n", search.tried,
                   rate);
    }
    set_count(r, batch, search.chosen ? search.chosen : 1);
    return rc;
}

int plait_run_choose_learners(struct run *r, struct plait_error *err)
{
    const struct plait_job_config *c = r->config;
    int dp = r->s->mesh->layout.size[PLAIT_DP], replicas = 0, rc = 0;
    int batch = c->train.global_batch;

    if (c->sync.learners != PLAIT_SYNC_LEARNERS_AUTO)
        return 0;
    if (plait_resume_replicas(r->args->resume, c, r->world, &replicas, err) < 0)
        return -1;
    if (replicas >= dp)
        set_count(r, batch, replicas / dp);
    else
        rc = search(r, batch, err);
    if (rc == 0 && plait_comm_rank(r->world) == 0)
        printf("sync.learners auto: %d%s, train.global_batch %d\n",
               c->sync.learners, replicas >= dp ? " as in the checkpoint" : "",
               c->train.global_batch);
    return rc;
}
