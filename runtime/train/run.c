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
#include "runtime/train/metrics.h"
#include "runtime/train/progress.h"
#include "runtime/train/sample.h"
#include "runtime/train/signals.h"
#include "runtime/train/step.h"
#include "runtime/train/watchdog.h"

/* One run from its first step to its last. */
struct run {
    struct plait_session *s;
    const struct plait_config *config;
    struct plait_comm *world;
    struct plait_trainer *trainer;
    struct plait_checkpoint_info done;  /* steps and tokens so far */
    struct plait_saver *saver;          /* NULL: no checkpoints */
    int64_t saved;                      /* step of the newest checkpoint */
    struct plait_metrics_file *metrics; /* rank 0, NULL: none */
    struct plait_watchdog *dog;         /* NULL: train.timeout not set */
    bool unlogged;                      /* they could not be written: why */
    struct plait_error why;
    struct plait_progress progress;             /* rank 0 */
    double peak;                                /* FLOP/s of all ranks */
    struct plait_trace *trace;                  /* NULL: log.profile not set */
    struct plait_profile *profile;              /* rank 0, NULL: nobody asked */
    struct plait_comm_stats control;            /* over the world, so far */
    struct plait_comm_stats sent[PLAIT_NCOMMS]; /* so far */
    double *stage_bytes; /* [pp] that the fullest rank of each stage holds */
    bool graphs_failed;  /* and it has been said */
    bool remarked;       /* what the queue has to say has been said */
};

/* What no part of the runtime can do yet is refused, never left out. */
static int check_supported(const struct plait_config *c,
                           const struct plait_ops *ops, struct plait_error *err)
{
    if (c->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER && !ops->gpu)
        return plait_errorf(err,
                            "parallel.offload of the optimizer is for "
                            "GPUs: on the %s its state is in the host's "
                            "memory already",
                            ops->name);
    if (c->parallel.virtual_stages > 1 && c->parallel.pp == 1)
        return plait_errorf(err, "parallel.virtual %d wants parallel.pp > 1",
                            c->parallel.virtual_stages);
    if (c->log.tensorboard)
        return plait_errorf(err, "log.tensorboard is not there yet: use "
                                 "log.metrics");
    return 0;
}

/* -- checkpoints --------------------------------------------------------- */

/* A directory that all ranks mean. */
struct place {
    int64_t step;
    int passed;      /* others, of a run that was left */
    char path[4096]; /* "": none */
};

/* Rank 0 looks for the newest checkpoint of a step before `below`. */
static int find_checkpoint(struct run *r, int64_t below, struct place *place,
                           struct plait_error *err)
{
    char *newest = NULL;
    int rc = 0;

    memset(place, 0, sizeof(*place));
    if (plait_comm_rank(r->world) == 0) {
        newest = plait_checkpoint_newest(r->config->checkpoint.dir, below,
                                         &place->step, &place->passed, err);
        if (newest)
            snprintf(place->path, sizeof(place->path), "%s", newest);
        else if (err->text[0])
            rc = -1;
        free(newest);
    }
    if (plait_agree(r->world, rc, err) < 0)
        return -1;
    if (plait_comm_host_broadcast(r->world, place, sizeof(*place), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    return 0;
}

static int load(struct run *r, const char *path, struct plait_error *err)
{
    int rc =
        plait_checkpoint_load(path, &r->done, plait_trainer_model(r->trainer),
                              plait_trainer_optim(r->trainer), err);

    if (rc == 0)
        r->saved = r->done.step;
    return rc;
}

static void say_passed(struct run *r, const struct place *place)
{
    if (place->passed && plait_comm_rank(r->world) == 0)
        fprintf(stderr,
                "plait-train: %s: later checkpoints than the one saved "
                "last (latest) are passed over: %d, of a run that was left; "
                "--resume DIR takes one\n",
                r->config->checkpoint.dir, place->passed);
}

/* The newest checkpoint that is whole; 1: there is none of any kind. What is
 * passed over is said: somebody will want to know where it went. */
static int load_newest(struct run *r, struct plait_error *err)
{
    struct place place = {.step = INT64_MAX};
    int skipped = 0;

    for (;; skipped++) {
        if (find_checkpoint(r, place.step, &place, err) < 0)
            return -1;
        if (skipped == 0)
            say_passed(r, &place);
        if (!place.path[0])
            break;
        if (load(r, place.path, err) == 0)
            return 0;
        if (errno != EBADMSG)
            return -1;
        if (err->text[0])
            fprintf(stderr,
                    "plait-train: checkpoint of step %" PRId64 " skipped: %s\n",
                    place.step, err->text);
        err->text[0] = '\0';
    }
    if (skipped + place.passed == 0)
        return 1;
    if (skipped > 0)
        plait_errorf(err,
                     "%s: none of the %d checkpoints is whole; "
                     "--resume none starts anew",
                     r->config->checkpoint.dir, skipped);
    else
        plait_errorf(err,
                     "%s: nothing is left of the checkpoint that latest "
                     "leads to, nor before it; --resume DIR takes another, "
                     "--resume none starts anew",
                     r->config->checkpoint.dir);
    return plait_agree(r->world, -1, err);
}

static void resume_loss_scale(struct run *r)
{
    struct plait_loss_scale *s = plait_trainer_loss_scale(r->trainer);

    if (s->dynamic) {
        *s = r->done.loss_scale;
        s->dynamic = true;
    }
}

/* Weights from the checkpoint that `resume` names, or initial ones. */
static int start_weights(struct run *r, const char *resume,
                         struct plait_error *err)
{
    struct plait_optim *optim = plait_trainer_optim(r->trainer);
    int rc = 1;

    if (strcmp(resume, "auto") != 0 && strcmp(resume, "none") != 0)
        rc = load(r, resume, err);
    else if (!strcmp(resume, "auto") && r->config->checkpoint.dir)
        rc = load_newest(r, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        resume_loss_scale(r);
    rc = rc == 0 ? plait_optim_refresh(optim, err)
                 : plait_optim_init(optim, r->config->train.seed, err);
    return plait_agree(r->world, rc, err);
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
static int save(struct run *r, struct plait_error *err)
{
    double begin = plait_trace_now();
    int rc;

    if (!r->saver || r->saved == r->done.step)
        return 0;
    r->done.loss_scale = *plait_trainer_loss_scale(r->trainer);
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
    r->done.loss_scale = *plait_trainer_loss_scale(r->trainer);
    rc = r->saved == r->done.step ? plait_saver_finish(r->saver, err)
                                  : plait_saver_save(r->saver, &r->done, err);
    r->saved = r->done.step;
    plait_trace_span(r->trace, "checkpoint", "checkpoint", begin);
    return rc;
}

/* -- the start ----------------------------------------------------------- */

static const char *recorded(const struct plait_graphs *g)
{
    if (g->last)
        return g->optim ? "forward, backward and optimizer"
                        : "forward and backward";
    if (g->passes)
        return g->optim ? "all micro-batches of a step but the last, and the "
                          "optimizer"
                        : "all micro-batches of a step but the last";
    return g->optim ? "the optimizer" : "nothing";
}

/* Where the device has no graphs nobody misses them. */
static void print_graphs(struct run *r)
{
    const struct plait_graphs *g = &r->s->par->graphs;

    if (r->s->ops->graph_begin)
        printf("recorded as graphs: %s%s%s\n", recorded(g),
               g->why[0] ? "; " : "", g->why);
}

/* The device thought otherwise. */
static void print_failed_graphs(struct run *r)
{
    const struct plait_graphs *g = &r->s->par->graphs;

    if (!g->failed || r->graphs_failed)
        return;
    r->graphs_failed = true;
    fprintf(stderr, "plait-train: steps run without graphs: %s\n", g->why);
}

static void print_remark(struct run *r)
{
    const char *remark = plait_queue_remark(r->s->par->q);

    if (!remark || r->remarked)
        return;
    r->remarked = true;
    fprintf(stderr, "plait-train: %s\n", remark);
}

static void print_summary(struct run *r)
{
    static const char *const families[] = {"gpt2", "llama", "mlp", "resnet"};
    struct plait_model *model = plait_trainer_model(r->trainer);
    const struct plait_config *c = r->config;
    const int *size = r->s->par->layout.size;

    printf("%s, %" PRId64 " parameters, %s on %s; %" PRId64 " steps of %d x "
           "%d tokens\n"
           "%d rank%s: tp %d, cp %d, ep %d, dp %d, pp %d; MFU against %.4g "
           "GFLOP/s measured\n",
           families[c->model.family], model->parameters,
           plait_dtype_name(model->type), r->s->ops->name, c->train.steps,
           c->train.global_batch, c->model.seq_len, r->s->par->world_size,
           r->s->par->world_size == 1 ? "" : "s", size[PLAIT_TP],
           size[PLAIT_CP], size[PLAIT_EP], size[PLAIT_DP], size[PLAIT_PP],
           r->peak / 1e9);
    print_graphs(r);
    if (r->done.step > 0)
        printf("resumed after step %" PRId64 "\n", r->done.step);
    fflush(stdout);
}

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
    plait_parallel_set_trace(r->s->par, r->trace);
    return 0;
}

static int close_trace(struct run *r, struct plait_error *err)
{
    struct plait_trace *trace = r->trace;

    plait_parallel_set_trace(r->s->par, NULL);
    plait_comm_set_trace(r->world, NULL);
    r->trace = NULL;
    return plait_trace_close(trace, err);
}

static int open_output(struct run *r, const struct plait_train_args *args,
                       struct plait_error *err)
{
    const char *path = args->metrics;

    if (open_trace(r, args->profile_summary, err) < 0)
        return -1;
    if (plait_comm_rank(r->world) != 0)
        return 0;
    if (!path)
        path = r->config->log.metrics;
    if (path) {
        r->metrics = plait_metrics_create(path, r->done.step, err);
        if (!r->metrics)
            return -1;
    }
    print_summary(r);
    plait_progress_init(&r->progress, stdout, r->done.step,
                        r->config->train.steps);
    return 0;
}

static int run_open(struct run *r, struct plait_session *s,
                    struct plait_error *err)
{
    memset(r, 0, sizeof(*r));
    r->s = s;
    r->config = s->config;
    r->world = s->world;
    r->saved = -1;
    return plait_agree(r->world, check_supported(r->config, s->ops, err), err);
}

static int measure_peak(struct run *r, struct plait_error *err)
{
    enum plait_dtype type = plait_model_type(r->config->train.precision);

    if (plait_trainer_peak(r->s->par, type, &r->peak) < 0)
        return plait_errorf(err, "the speed of matrix products could not be "
                                 "measured");
    return 0;
}

static int open_trainer(struct run *r, struct plait_error *err)
{
    r->trainer = plait_trainer_create(r->config, r->s->par, err);
    return plait_agree(r->world, r->trainer ? 0 : -1, err);
}

static void run_close(struct run *r)
{
    plait_watchdog_destroy(r->dog);
    close_trace(r, NULL);
    plait_profile_print(r->profile, stdout);
    plait_profile_destroy(r->profile);
    plait_metrics_destroy(r->metrics);
    plait_saver_destroy(r->saver);
    plait_trainer_destroy(r->trainer);
    free(r->stage_bytes);
}

/* What went over each group since the last call. */
static void measure_comm(struct run *r, struct plait_metrics *m)
{
    struct plait_parallel *par = r->s->par;
    struct plait_comm_stats now_sent;
    int i;

    plait_comm_stats(r->world, &now_sent);
    m->comm_s = now_sent.wait_s - r->control.wait_s;
    m->comm_hidden_s = 0;
    r->control = now_sent;
    for (i = 0; i < PLAIT_NCOMMS; i++) {
        struct plait_comm *comm = plait_parallel_comm(par, i);

        now_sent = (struct plait_comm_stats){0};
        if (comm)
            plait_comm_stats(comm, &now_sent);
        m->comm_bytes[i] = now_sent.bytes - r->sent[i].bytes;
        m->comm_s += now_sent.wait_s - r->sent[i].wait_s;
        m->comm_hidden_s += now_sent.hidden_s - r->sent[i].hidden_s;
        r->sent[i] = now_sent;
    }
}

static int start(struct run *r, const struct plait_train_args *args,
                 struct plait_error *err)
{
    struct plait_metrics before;
    int rc = 0;

    if (start_weights(r, args->resume, err) < 0)
        return -1;
    if (r->done.step < r->config->train.steps)
        rc = plait_trainer_open_data(r->trainer, r->done.step, err);
    if (plait_agree(r->world, rc, err) < 0 || open_saver(r, err) < 0)
        return -1;
    measure_comm(r, &before);
    if (plait_agree(r->world, open_output(r, args, err), err) < 0)
        return -1;
    if (r->config->train.timeout > 0) {
        r->dog = plait_watchdog_create(r->world, r->config->train.timeout, err);
        rc = r->dog ? 0 : -1;
    }
    return plait_agree(r->world, rc, err);
}

/* -- the loop ------------------------------------------------------------ */

/* After the first step a run holds what it will ever hold. */
static int measure_stages(struct run *r, struct plait_error *err)
{
    const struct plait_parallel *par = r->s->par;
    int pp = par->layout.size[PLAIT_PP];
    size_t now, peak;

    r->stage_bytes = calloc(pp, sizeof(*r->stage_bytes));
    if (!r->stage_bytes)
        return plait_errorf(err, "out of memory");
    par->ops->memory(par->dev, &now, &peak);
    r->stage_bytes[par->coord.at[PLAIT_PP]] = now;
    if (plait_comm_host_all_reduce(r->world, r->stage_bytes, pp, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    return 0;
}

/* What is offloaded: pinned memory, and the optimizer's state. */
static size_t measure_host(struct run *r)
{
    const struct plait_parallel *par = r->s->par;
    const struct plait_shards *shards =
        plait_optim_shards(plait_trainer_optim(r->trainer));
    size_t pinned, state = 0;

    par->ops->pinned_memory(par->dev, NULL, &pinned);
    if (r->config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER)
        shards->state_ops->memory(shards->state_dev, NULL, &state);
    return pinned + state;
}

static void measure(struct run *r, const struct plait_step_result *result,
                    double seconds, struct plait_metrics *m)
{
    struct plait_model *model = plait_trainer_model(r->trainer);
    double tokens =
        (double)r->config->train.global_batch * r->config->model.seq_len;
    size_t used;

    m->step = r->done.step;
    m->loss = result->loss;
    m->val_loss = NAN;
    m->grad_norm = result->grad_norm;
    m->lr = result->lr;
    m->tokens = r->done.tokens;
    m->tokens_per_s = tokens / seconds;
    m->mfu = m->tokens_per_s * plait_model_flops_per_token(model) / r->peak;
    m->step_s = seconds;
    r->s->ops->memory(r->s->dev, &used, &m->mem_bytes);
    m->host_bytes = measure_host(r);
    m->stage_bytes = r->stage_bytes;
    m->nstages = r->s->par->layout.size[PLAIT_PP];
    measure_comm(r, m);
}

/* A run whose metrics cannot be written ends as on a signal, with a
 * checkpoint: what was trained is not lost. */
static void log_step(struct run *r, const struct plait_metrics *m)
{
    const struct plait_config *c = r->config;
    bool last = m->step == c->train.steps;

    if (plait_comm_rank(r->world) != 0)
        return;
    if (r->metrics && !r->unlogged && (m->step % c->log.every == 0 || last) &&
        plait_metrics_write(r->metrics, m) < 0) {
        plait_errorf(&r->why, "log.metrics: %s", strerror(errno));
        r->unlogged = true;
    }
    plait_progress_show(&r->progress, m);
}

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static int evaluate(struct run *r, double *loss, struct plait_error *err)
{
    double begin = plait_trace_now();
    int rc = plait_trainer_eval(r->trainer, loss, err);

    plait_trace_span(r->trace, "run", "evaluation", begin);
    return rc;
}

/* One step and what belongs to it. */
static int one_step(struct run *r, int *stop, struct plait_error *err)
{
    const struct plait_config *c = r->config;
    struct plait_step_result result;
    struct plait_metrics m;
    double begin = plait_trace_now(), seconds;

    if (plait_trainer_step(r->trainer, r->done.step,
                           plait_signals_caught() != 0 || r->unlogged, &result,
                           err) < 0)
        return PLAIT_RUN_BROKEN;
    print_failed_graphs(r);
    print_remark(r);
    r->done.step++;
    r->done.tokens += (int64_t)c->train.global_batch * c->model.seq_len;
    seconds = plait_trace_now() - begin;
    if (!r->stage_bytes && measure_stages(r, err) < 0)
        return PLAIT_RUN_BROKEN;
    measure(r, &result, seconds, &m);
    plait_trace_span(r->trace, "run", "step", begin);
    if (due(r->done.step, c->train.eval_every) &&
        evaluate(r, &m.val_loss, err) < 0)
        return PLAIT_RUN_BROKEN;
    log_step(r, &m);
    *stop = result.stop;
    if (!isfinite(result.loss) ||
        (!isfinite(result.grad_norm) && !result.skipped)) {
        plait_errorf(err,
                     "step %" PRId64 ": loss %g, gradient norm %g: "
                     "stopped; try a smaller optim.lr or more lr.warmup",
                     r->done.step, result.loss, result.grad_norm);
        return plait_agree(r->world, -1, err);
    }
    if (due(r->done.step, c->checkpoint.every))
        return save(r, err);
    return poll_saver(r, err);
}

static int loop(struct run *r, struct plait_error *err)
{
    int rc = 0, stop = 0;

    while (rc == 0 && !stop && r->done.step < r->config->train.steps) {
        rc = one_step(r, &stop, err);
        plait_watchdog_pat(r->dog);
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
        return plait_agree(r->world, r->unlogged ? -1 : 0, err);
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
        rc = start(&r, args, err);
    if (rc == 0)
        rc = loop(&r, err);
    if (rc == 0)
        rc = plait_agree(r.world, close_trace(&r, err), err);
    if (rc != PLAIT_RUN_BROKEN)
        run_close(&r);
    return rc;
}

int plait_run_sample(struct plait_session *s,
                     const struct plait_train_args *args,
                     struct plait_error *err)
{
    struct plait_words words = {0};
    struct run r;
    int rc = run_open(&r, s, err);

    if (rc == 0)
        rc = open_trainer(&r, err);
    if (rc == 0)
        rc = start_weights(&r, args->resume, err);
    if (rc == 0 && r.done.step == 0) {
        rc = -1;
        if (plait_comm_rank(r.world) == 0)
            plait_errorf(err,
                         "--sample: there is no checkpoint to sample "
                         "from in checkpoint.dir (%s)",
                         r.config->checkpoint.dir ? r.config->checkpoint.dir
                                                  : "not set");
    }
    if (rc == 0)
        rc = plait_words_open(&words, s->world, args->tokenizer, args->prompt,
                              s->config->model.vocab, err);
    if (rc == 0 && plait_sample(r.trainer, s->par, r.config, &words,
                                args->sample, stdout, err) < 0)
        return PLAIT_RUN_BROKEN;
    plait_words_close(&words);
    run_close(&r);
    return rc;
}
