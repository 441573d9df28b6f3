/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/trace.h"
#include "runtime/parallel/shard.h"
#include "runtime/train/log.h"
#include "runtime/train/metrics.h"
#include "runtime/train/peak.h"
#include "runtime/train/progress.h"
#include "runtime/train/report.h"
#include "runtime/train/resume.h"
#include "runtime/train/signals.h"
#include "runtime/train/step.h"
#include "runtime/train/watchdog.h"

/* One run from its first step to its last. */
struct run {
    struct plait_session *s;
    const struct plait_job_config *config;
    struct plait_comm *world;
    struct plait_trainer *trainer;
    struct plait_checkpoint_info done; /* steps and tokens so far */
    struct plait_saver *saver;         /* NULL: no checkpoints */
    int64_t saved;                     /* step of the newest checkpoint */
    struct plait_log *log;             /* rank 0, NULL: none */
    struct plait_watchdog *dog;        /* NULL: train.timeout not set */
    bool unlogged;                     /* they could not be written: why */
    struct plait_error why;
    struct plait_progress progress;             /* rank 0 */
    double peak;                                /* FLOP/s of all ranks */
    struct plait_trace *trace;                  /* NULL: log.profile not set */
    struct plait_profile *profile;              /* rank 0, NULL: nobody asked */
    struct plait_comm_stats control;            /* over the world, so far */
    struct plait_comm_stats sent[PLAIT_NCOMMS]; /* so far */
    double *stage_bytes; /* [pp] that the fullest rank of each stage holds */
    struct plait_report report;
};

/* -- checkpoints --------------------------------------------------------- */

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
    int unit = r->s->mesh->layout.size[PLAIT_DP] * c->train.micro_batch;
    int batch;

    resume_loss_scale(r);
    *s = r->done.state;
    if (!s->samples)
        s->samples = r->done.step * c->train.global_batch;
    batch = plait_growth_batch(&s->growth, c, r->done.step);
    if (batch % unit == 0 && batch <= plait_growth_most(c))
        return 0;
    return plait_errorf(err,
                        "the checkpoint's batch of %d is above batch.max %d or "
                        "not divisible by dp * train.micro_batch = %d",
                        batch, c->batch.max, unit);
}

/* The state of the run between two steps. */
static void describe_state(struct run *r)
{
    r->done.loss_scale = *plait_trainer_loss_scale(r->trainer);
    r->done.state = *plait_trainer_state(r->trainer);
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
        return -1;
    return plait_optim_refresh(optim, err);
}

/* Weights from the checkpoint that args->resume names, or fresh ones. */
static int start_weights(struct run *r, const struct plait_train_args *args,
                         struct plait_error *err)
{
    struct plait_optim *optim = plait_trainer_optim(r->trainer);
    int rc = plait_resume(args->resume, plait_optim_shards(optim), optim,
                          &r->done, err);

    if (rc < 0)
        return -1;
    if (rc == 0) {
        r->saved = r->done.step;
        rc = resume_state(r, err);
        if (rc == 0)
            rc = plait_optim_refresh(optim, err);
    } else {
        rc = fresh_weights(r, args->init, err);
    }
    return plait_error_consensus(r->world, rc, err);
}

static bool saves_beside(const struct plait_checkpoint_config *c)
{
    return c->async && c->every > 0;
}

static int open_saver(struct run *r, struct plait_error *err)
{
    const struct plait_checkpoint_config *c = &r->config->checkpoint;

    if (!c->dir)
        return 0;
    r->saver = plait_saver_create(c->dir, c->keep, saves_beside(c),
                                  plait_trainer_model(r->trainer),
                                  plait_trainer_optim(r->trainer), err);
    return r->saver ? 0 : -1;
}

/* Between two steps: the training waits for the copy alone. */
static int save_checkpoint(struct run *r, struct plait_error *err)
{
    double begin = plait_trace_now();
    int rc;

    if (!r->saver || r->saved == r->done.step)
        return 0;
    describe_state(r);
    rc = saves_beside(&r->config->checkpoint)
             ? plait_saver_start(r->saver, &r->done, err)
             : plait_saver_save(r->saver, &r->done, err);
    r->saved = r->done.step;
    plait_trace_span(r->trace, "checkpoint", "checkpoint", begin);
    return rc;
}

/* Put in place what was written beside the steps since. */
static int poll_saver(struct run *r, struct plait_error *err)
{
    return r->saver ? plait_saver_poll(r->saver, err) : 0;
}

/* After the last step nothing is gained by a copy. */
static int save_last(struct run *r, struct plait_error *err)
{
    double begin = plait_trace_now();
    int rc;

    if (!r->saver)
        return 0;
    describe_state(r);
    rc = r->saved == r->done.step ? plait_saver_finish(r->saver, err)
                                  : plait_saver_save(r->saver, &r->done, err);
    r->saved = r->done.step;
    plait_trace_span(r->trace, "checkpoint", "checkpoint", begin);
    return rc;
}

/* -- the start ----------------------------------------------------------- */

static int open_trace(struct run *r, bool summary, struct plait_error *err)
{
    const char *dir = r->config->log.profile;

    if (summary && plait_comm_rank(r->world) == 0 &&
        !(r->profile = plait_profile_create()))
        return plait_errorf(err, "out of memory");
    if (!dir && !r->profile)
        return 0;
    r->trace = plait_trace_create(dir, plait_comm_rank(r->world),
                                  plait_comm_size(r->world), r->profile, err);
    if (!r->trace)
        return -1;
    plait_comm_set_trace(r->world, r->trace);
    plait_mesh_set_trace(r->s->mesh, r->trace);
    return 0;
}

static int close_trace(struct run *r, struct plait_error *err)
{
    struct plait_trace *trace = r->trace;

    plait_mesh_set_trace(r->s->mesh, NULL);
    plait_comm_set_trace(r->world, NULL);
    r->trace = NULL;
    return plait_trace_close(trace, err);
}

static int open_output(struct run *r, const struct plait_train_args *args,
                       struct plait_error *err)
{
    if (open_trace(r, args->profile_summary, err) < 0)
        return -1;
    if (plait_comm_rank(r->world) != 0)
        return 0;
    r->log = plait_log_create(r->s, args, plait_trainer_model(r->trainer),
                              r->peak, r->done.step, err);
    if (!r->log)
        return -1;
    plait_report_start(r->s, plait_trainer_model(r->trainer), r->peak,
                       r->done.step);
    plait_progress_init(&r->progress, stdout, r->done.step,
                        r->config->train.steps,
                        plait_is_image_model(&r->config->model));
    return 0;
}

static int run_open(struct run *r, struct plait_session *s,
                    struct plait_error *err)
{
    memset(r, 0, sizeof(*r));
    r->s = s;
    r->config = s->config;
    r->world = s->world.comm;
    r->saved = -1;
    return plait_error_consensus(
        r->world, plait_run_supported(r->config, s->world.ops, err), err);
}

static int measure_peak(struct run *r, struct plait_error *err)
{
    enum plait_dtype type = plait_model_type(r->config->train.precision);

    if (plait_peak_measure(r->s->mesh, type, &r->peak) < 0)
        return plait_errorf(err, "the speed of matrix products could not be "
                                 "measured");
    return 0;
}

static int open_trainer(struct run *r, struct plait_error *err)
{
    r->trainer = plait_trainer_create(r->config, r->s->mesh, err);
    return plait_error_consensus(r->world, r->trainer ? 0 : -1, err);
}

static void run_close(struct run *r)
{
    plait_watchdog_destroy(r->dog);
    close_trace(r, NULL);
    plait_profile_print(r->profile, stdout);
    plait_profile_destroy(r->profile);
    plait_log_destroy(r->log);
    plait_saver_destroy(r->saver);
    plait_trainer_destroy(r->trainer);
    free(r->stage_bytes);
}

/* What went over each group since the last call. */
static void measure_comm(struct run *r, struct plait_metrics *m)
{
    struct plait_mesh *mesh = r->s->mesh;
    struct plait_comm_stats now_sent;
    int i;

    plait_comm_stats(r->world, &now_sent);
    m->comm_s = now_sent.wait_s - r->control.wait_s;
    m->comm_hidden_s = 0;
    r->control = now_sent;
    for (i = 0; i < PLAIT_NCOMMS; i++) {
        struct plait_comm *comm = plait_mesh_comm(mesh, i);

        now_sent = (struct plait_comm_stats){0};
        if (comm)
            plait_comm_stats(comm, &now_sent);
        m->comm_bytes[i] = now_sent.bytes - r->sent[i].bytes;
        m->comm_wait[i] = now_sent.wait_s - r->sent[i].wait_s;
        m->comm_s += m->comm_wait[i];
        m->comm_hidden_s += now_sent.hidden_s - r->sent[i].hidden_s;
        r->sent[i] = now_sent;
    }
}

static int start_run(struct run *r, const struct plait_train_args *args,
                     struct plait_error *err)
{
    struct plait_metrics before;
    int rc = 0;

    if (start_weights(r, args, err) < 0)
        return -1;
    if (r->done.step < r->config->train.steps)
        rc = plait_trainer_open_data(r->trainer, err);
    if (plait_error_consensus(r->world, rc, err) < 0 || open_saver(r, err) < 0)
        return -1;
    measure_comm(r, &before);
    if (plait_error_consensus(r->world, open_output(r, args, err), err) < 0)
        return -1;
    if (r->config->train.timeout > 0) {
        r->dog = plait_watchdog_create(r->world, r->config->train.timeout, err);
        rc = r->dog ? 0 : -1;
    }
    return plait_error_consensus(r->world, rc, err);
}

/* -- the loop ------------------------------------------------------------ */

/* After the first step a run holds what it will ever hold. */
static int measure_stages(struct run *r, struct plait_error *err)
{
    const struct plait_mesh *mesh = r->s->mesh;
    int pp = mesh->layout.size[PLAIT_PP];
    size_t now, peak;

    r->stage_bytes = calloc(pp, sizeof(*r->stage_bytes));
    if (!r->stage_bytes)
        return plait_errorf(err, "out of memory");
    mesh->ops->memory(mesh->dev, &now, &peak);
    r->stage_bytes[mesh->coord.at[PLAIT_PP]] = now;
    if (plait_comm_host_all_reduce(r->world, r->stage_bytes, pp, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    return 0;
}

/* What is offloaded: pinned memory, and the optimizer's state. */
static size_t measure_host(struct run *r)
{
    const struct plait_mesh *mesh = r->s->mesh;
    const struct plait_shards *shards =
        plait_optim_shards(plait_trainer_optim(r->trainer));
    size_t pinned, state = 0;

    mesh->ops->pinned_memory(mesh->dev, NULL, &pinned);
    if (r->config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER)
        shards->state_ops->memory(shards->state_dev, NULL, &state);
    return pinned + state;
}

static void measure_step(struct run *r, const struct plait_step_result *result,
                         double seconds, struct plait_metrics *m)
{
    struct plait_model *model = plait_trainer_model(r->trainer);
    double tokens = (double)result->batch * r->config->model.seq_len;
    double flops; /* a second */
    size_t used;

    m->step = r->done.step;
    m->batch = result->batch;
    m->seen = result->seen;
    m->skipped = result->skipped;
    m->loss = result->loss;
    m->val = (struct plait_evaluation){.loss = NAN, .accuracy = NAN};
    m->grad_norm = result->grad_norm;
    m->lr = result->lr;
    m->tokens = r->done.tokens;
    m->tokens_per_s = tokens / seconds;
    flops = m->tokens_per_s * plait_model_flops_per_token(model);
    /* A peak that was beaten was measured while others had the cores. */
    r->peak = fmax(r->peak, flops);
    m->mfu = flops / r->peak;
    m->step_s = seconds;
    r->s->world.ops->memory(r->s->world.dev, &used, &m->mem_bytes);
    m->host_bytes = measure_host(r);
    m->stage_bytes = r->stage_bytes;
    m->nstages = r->s->mesh->layout.size[PLAIT_PP];
    measure_comm(r, m);
}

/* A run whose metrics cannot be written ends as on a signal, with a
 * checkpoint: what was trained is not lost. */
static void log_step(struct run *r, const struct plait_metrics *m)
{
    const struct plait_job_config *c = r->config;
    bool last = m->step == c->train.steps;

    if (plait_comm_rank(r->world) != 0)
        return;
    if (!r->unlogged && (m->step % c->log.every == 0 || last) &&
        plait_log_write(r->log, m, &r->why) < 0)
        r->unlogged = true;
    plait_progress_show(&r->progress, m);
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static int evaluate_model(struct run *r, struct plait_metrics *m,
                          struct plait_error *err)
{
    double begin = plait_trace_now();
    int rc = plait_trainer_eval(r->trainer, &m->val, err);

    plait_trace_span(r->trace, "run", "evaluation", begin);
    return rc;
}

/* One step and what belongs to it. */
static int one_step(struct run *r, int *stop, struct plait_error *err)
{
    const struct plait_job_config *c = r->config;
    struct plait_step_result result;
    struct plait_metrics m;
    double begin = plait_trace_now(), seconds;

    if (plait_trainer_step(r->trainer, r->done.step,
                           plait_signals_caught() != 0 || r->unlogged, &result,
                           err) < 0)
        return PLAIT_RUN_BROKEN;
    plait_report_changes(&r->report, r->s->mesh);
    r->done.step++;
    r->done.tokens += (int64_t)result.batch * c->model.seq_len;
    seconds = plait_trace_now() - begin;
    if (!r->stage_bytes && measure_stages(r, err) < 0)
        return PLAIT_RUN_BROKEN;
    measure_step(r, &result, seconds, &m);
    plait_trace_span(r->trace, "run", "step", begin);
    if (is_due(r->done.step, c->train.eval_every) &&
        evaluate_model(r, &m, err) < 0)
        return PLAIT_RUN_BROKEN;
    log_step(r, &m);
    *stop = result.stop;
    if (!isfinite(result.loss) ||
        (!isfinite(result.grad_norm) && !result.skipped)) {
        plait_errorf(err,
                     "step %" PRId64 ": loss %g, gradient norm %g: "
                     "stopped; try a smaller optim.lr or more lr.warmup",
                     r->done.step, result.loss, result.grad_norm);
        return plait_error_consensus(r->world, -1, err);
    }
    if (is_due(r->done.step, c->checkpoint.every))
        return save_checkpoint(r, err);
    return poll_saver(r, err);
}

static int run_steps(struct run *r, struct plait_error *err)
{
    int rc = 0, stop = 0;

    while (rc == 0 && !stop && r->done.step < r->config->train.steps) {
        rc = one_step(r, &stop, err);
        plait_watchdog_reset(r->dog);
    }
    if (plait_comm_rank(r->world) == 0) {
        plait_progress_end(&r->progress);
        if (stop)
            printf("stopped after step %" PRId64 "\n", r->done.step);
    }
    if (rc == 0)
        rc = save_last(r, err);
    if (rc == 0) {
        if (r->unlogged)
            *err = r->why;
        return plait_error_consensus(r->world, r->unlogged ? -1 : 0, err);
    }
    /* What was right when it was copied is still put in place. */
    if (rc == -1 && r->saver)
        plait_saver_finish(r->saver, NULL);
    return rc;
}

int plait_run_train(struct plait_session *s,
                    const struct plait_train_args *args,
                    struct plait_error *err)
{
    struct run r;
    int rc = run_open(&r, s, err);

    if (rc == 0)
        rc = measure_peak(&r, err);
    if (rc == 0)
        rc = open_trainer(&r, err);
    if (rc == 0)
        rc = start_run(&r, args, err);
    if (rc == 0)
        rc = run_steps(&r, err);
    if (rc == 0)
        rc = plait_error_consensus(r.world, close_trace(&r, err), err);
    if (rc != PLAIT_RUN_BROKEN)
        run_close(&r);
    return rc;
}
