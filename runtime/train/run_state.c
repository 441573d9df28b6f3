/* SPDX-License-Identifier: Apache-2.0 */
/* The state a run starts with (resumed, from --init or fresh) and to which it
 * goes back when a step is not finite.
 *
 * In this order: copies in memory, after the loss of a rank; the checkpoint of
 * --resume; the weights of --init; fresh weights. A checkpoint may hold a state
 * from which training diverges at once, for example one of faulty memory. With
 * --resume auto nobody has asked for that one, so it is on trial until its
 * first step was finite (plait_run_try); else the run takes the one before it,
 * and so on. The checkpoint is read by all ranks, each its own part, and every
 * outcome is agreed on. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/model_source.h"
#include "runtime/comm/consensus.h"
#include "runtime/parallel/shard.h"
#include "runtime/train/elastic.h"
#include "runtime/train/resume.h"
#include "runtime/train/run_private.h"
#include "topology/base/files.h"

void plait_run_state_create(struct run *r)
{
    r->state.trial = -1;
    r->saved = -1;
}

static void resume_loss_scale(struct run *r)
{
    struct plait_loss_scale *s = plait_trainer_loss_scale(r->trainer);

    if (s->dynamic) {
        *s = r->done.loss_scale;
        s->dynamic = true;
    }
}

/* Checkpoints of an earlier version lack the count of samples. */
static int resume_state(struct run *r, struct plait_error *err)
{
    const struct plait_job_config *c = r->config;
    struct plait_run_state *s = plait_trainer_state(r->trainer);
    int unit = plait_growth_unit(c, &r->s->mesh->layout), batch;

    resume_loss_scale(r);
    *s = r->done.state;
    if (!s->samples)
        s->samples = r->done.step * c->train.global_batch;
    batch = plait_growth_batch(&s->growth, c, r->done.step);
    if (batch % unit == 0 && batch <= plait_growth_most(c))
        return 0;
    return plait_errorf(err,
                        "the checkpoint's batch of %d is above batch.max %d or "
                        "not divisible by %d, the micro-batches that the "
                        "layout takes at once",
                        batch, c->batch.max, unit);
}

/* What has named the weights to begin with. */
static const char *init_key(const struct run *r)
{
    return r->args->init           ? "--init: "
           : r->config->train.init ? "train.init: "
                                   : "";
}

/* Initial weights, or those of another run. */
static int fresh_weights(struct run *r, const char *init,
                         struct plait_error *err)
{
    struct plait_optim *optim = plait_trainer_optim(r->trainer);
    int rc = plait_optim_init(optim, r->config->train.seed, err);

    if (plait_error_consensus(r->world, rc, err) < 0)
        return -1;
    if (!init)
        return 0;
    if (plait_checkpoint_start(init, plait_optim_shards(optim), optim, err) < 0)
        return plait_error_prefix(err, init_key(r));
    return plait_optim_refresh(optim, err);
}

/* Most schedules end at train.steps: with another one the rate jumps. */
static void say_rate(const struct run *r)
{
    const struct plait_job_config *c = r->config;
    int64_t step = r->done.step, then = r->done.planned;
    double peak = plait_lr_peak(
        &c->lr, c->optim.lr,
        plait_growth_batch(&plait_trainer_state(r->trainer)->growth, c, step));
    double was = plait_lr(&c->lr, peak, step, then);
    double now = plait_lr(&c->lr, peak, step, c->train.steps);

    if (plait_comm_rank(r->world) == 0 && then > 0 && then != c->train.steps &&
        fabs(now - was) > 0.1 * was)
        printf("train.steps was %" PRId64 " and is %" PRId64
               ": after step %" PRId64
               " the learning rate is %.3g, no longer %.3g\n",
               then, c->train.steps, step, now, was);
}

/* Take over the state that was loaded. */
static int take_state(struct run *r, struct plait_error *err)
{
    int rc = resume_state(r, err);

    if (rc == 0 && r->done.step > 0)
        say_rate(r);
    r->saved = r->done.step;
    return rc == 0 ? plait_optim_refresh(plait_trainer_optim(r->trainer), err)
                   : rc;
}

static int resume_before(struct run *r, int64_t below, struct plait_error *err)
{
    const struct plait_resume_from from = {r->args->resume, r->args->anyway,
                                           below};
    struct plait_optim *optim = plait_trainer_optim(r->trainer);

    return plait_resume(&from, plait_optim_shards(optim), optim, &r->done, err);
}

int plait_run_start_weights(struct run *r, struct plait_error *err)
{
    int rc = plait_run_load_copies(r, err);
    bool copied = rc == 0;

    if (rc == 1)
        rc = resume_before(r, INT64_MAX, err);
    if (rc < 0)
        return -1;
    if (rc == 0 && !strcmp(r->args->resume, "auto"))
        r->state.trial = r->done.step;
    r->state.resumed = rc == 0;
    rc = rc == 0 ? take_state(r, err) : fresh_weights(r, r->s->init, err);
    if (copied)
        r->saved = -1; /* no file holds this state */
    plait_elastic_note_source(r->s, copied);
    return plait_error_consensus(r->world, rc, err);
}

/* Whether the model there is the run's. */
static bool is_model_of_run(const struct run *r, const char *dir)
{
    struct plait_model_source source;
    struct plait_model_config model;
    struct plait_error err;

    return plait_model_source_find(dir, &source, &err) == 0 &&
           (source.hf
                ? plait_hf_config_read(source.path, &model, &err)
                : plait_model_file_read(source.path, &model, &err)) == 0 &&
           plait_model_same(dir, &model, &r->config->model, &err) == 0;
}

const char *plait_run_origin(const struct run *r)
{
    const char *resume = r->args->resume;

    if (strcmp(resume, "auto") != 0 && strcmp(resume, "none") != 0)
        return resume;
    /* Its own files are there already, unless it resumes from
     * checkpoint.fallback. --init may name another model, which is not used. */
    if (r->state.resumed && r->s->init &&
        (plait_files_has(r->config->checkpoint.dir, "config.json") ||
         !is_model_of_run(r, r->s->init)))
        return NULL;
    return r->s->init;
}

/* -- data ----------------------------------------------------------------- */

int plait_run_open_data(struct run *r, struct plait_error *err)
{
    struct plait_data_identity data;
    struct plait_activity a;
    int rc;

    a = plait_activity_begin(
        &r->s->mesh->listeners,
        &(struct plait_doing){.stage = "opening the data"});
    rc = plait_trainer_open_data(r->trainer, err);
    plait_activity_end(&a);
    if (rc < 0)
        return -1;
    if (plait_comm_rank(r->world) != 0)
        return 0;
    if (plait_trainer_identify_data(r->trainer, &data, err) < 0)
        return -1;
    plait_run_saving_data(r, &data);
    return plait_resume_check_data(&r->done, &data, r->args->anyway, err);
}

/* -- a checkpoint that proves useless -------------------------------------- */

/* Check the first step; all ranks agree. -1 with errno EDOM: it is not
 * finite. */
static int check_step(struct run *r, const struct plait_step_result *result,
                      struct plait_error *err)
{
    int rc = 0;

    if (!isfinite(result->loss) ||
        (!isfinite(result->grad_norm) && !result->skipped)) {
        errno = EDOM;
        rc = plait_errorf(err, "loss %g, gradient norm %g", result->loss,
                          result->grad_norm);
        return plait_error_consensus(r->world, rc, err);
    }
    return plait_run_check_state(r, err);
}

static int step_back(struct run *r, struct plait_error *err)
{
    int64_t from = r->state.trial;
    int rc;

    if (err->text[0])
        fprintf(stderr,
                "plait-train: checkpoint of step %" PRId64
                " skipped: its first step is not finite: %s\n",
                from, err->text);
    err->text[0] = '\0';
    if (resume_before(r, from, err) != 0)
        return -1;
    r->state.trial = r->done.step;
    rc = take_state(r, err);
    if (rc == 0)
        rc = plait_trainer_seek_data(r->trainer, err);
    if (rc == 0)
        rc = plait_run_open_log(r, err);
    return plait_error_consensus(r->world, rc, err);
}

int plait_run_try(struct run *r, const struct plait_step_result *result,
                  struct plait_error *err)
{
    if (r->state.trial < 0)
        return 0;
    if (check_step(r, result, err) == 0) {
        r->state.trial = -1;
        return 0;
    }
    if (errno != EDOM)
        return -1;
    return step_back(r, err) < 0 ? PLAIT_RUN_FAILED : PLAIT_RUN_BACK;
}
