/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/step_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "runtime/mesh/graph_capture.h"
#include "runtime/trace/activity.h"
#include "runtime/train/precision.h"
#include "topology/base/clock.h"

/* -- life ---------------------------------------------------------------- */

static int learners_of(const struct plait_trainer *t)
{
    return plait_sync_learners(&t->config->sync);
}

/* The next step has `batch` sequences. The pipeline's schedule and the
 * model's activations are made for the micro-batches of a step. */
static int set_batch(struct plait_trainer *t, int batch,
                     struct plait_error *err)
{
    int microbatches = batch / plait_trainer_batch_unit(t) / learners_of(t);

    t->batch_size = batch;
    if (t->pipe && t->microbatches == microbatches)
        return 0;
    if (t->pipe && t->mesh->ops->queue_sync(t->mesh->q) < 0)
        return plait_errorf(err, "%s", plait_queue_error(t->mesh->q));
    t->microbatches = microbatches;
    plait_pipeline_destroy(t->pipe);
    t->pipe = plait_pipeline_create(t->model, t->microbatches,
                                    t->config->train.micro_batch, err);
    return t->pipe ? 0 : -1;
}

/* A batch that follows the noise scale needs a noise scale that can be
 * measured. */
static int check_growth(const struct plait_trainer *t, struct plait_error *err)
{
    const struct plait_job_config *c = t->config;
    int batch = c->train.global_batch;
    const char *why = NULL;

    if (!c->batch.growth.is_auto)
        return 0;
    plait_small_batch_choose(c, &t->mesh->layout, batch,
                             batch / plait_trainer_batch_unit(t), &why);
    if (!why)
        return 0;
    errno = ENOTSUP;
    return plait_errorf(err,
                        "batch.growth auto: the noise scale cannot be "
                        "measured: %s",
                        why);
}

/* What this rank makes without the others. */
static int make_own(struct plait_trainer *t, struct plait_error *err)
{
    const struct plait_train_config *c = &t->config->train;
    struct plait_mesh *mesh = t->mesh;

    if (check_growth(t, err) < 0)
        return -1;
    t->most = plait_growth_most(t->config) / plait_trainer_batch_unit(t);
    t->batch = calloc(t->most, sizeof(*t->batch));
    if (c->noise > 0)
        t->weights =
            calloc((size_t)t->most * c->micro_batch, sizeof(*t->weights));
    t->loss = mesh->ops->alloc(mesh->dev, 2 * sizeof(*t->loss));
    t->seen = mesh->ops->pinned_alloc(mesh->dev, NSEEN * sizeof(*t->seen));
    t->summed = mesh->ops->event_create(mesh->dev, 0);
    t->sums = calloc(NSUMS + mesh->layout.size[PLAIT_DP], sizeof(*t->sums));
    t->factor = calloc(learners_of(t), sizeof(*t->factor));
    t->counts = calloc(learners_of(t), 2 * sizeof(*t->counts));
    if (!t->batch || !t->loss || !t->seen || !t->summed || !t->sums ||
        !t->factor || !t->counts || (c->noise > 0 && !t->weights))
        return plait_errorf(err, "out of memory");
    if (plait_precision_set(mesh, c->precision, err) < 0 ||
        plait_precision_room(mesh, t->config, PLAIT_WORK_TRAIN, err) < 0 ||
        plait_graphs_choose(&mesh->graphs, t->config, mesh, err) < 0)
        return -1;
    t->model = plait_model_create(t->config, mesh, err);
    return t->model ? 0 : -1;
}

static int make_parts(struct plait_trainer *t, struct plait_error *err)
{
    t->optim = plait_optim_create(t->model, err);
    if (!t->optim)
        return -1;
    t->sync =
        plait_gradsync_create(t->model, plait_optim_shards(t->optim), err);
    if (!t->sync)
        return -1;
    if (plait_sync_parts(&t->config->sync) &&
        !(t->replicas = plait_replicas_create(t->optim, err)))
        return -1;
    if (t->config->log.histograms &&
        !(t->histograms = plait_histograms_create(t->optim, err)))
        return -1;
    return set_batch(t, t->config->train.global_batch, err);
}

struct plait_trainer *
plait_trainer_create(const struct plait_job_config *config,
                     struct plait_mesh *mesh, struct plait_error *err)
{
    struct plait_trainer *t = calloc(1, sizeof(*t));
    int rc = t ? 0 : plait_errorf(err, "out of memory");

    if (t) {
        t->config = config;
        t->mesh = mesh;
        plait_loss_scale_init(&t->scale, &config->train);
        rc = make_own(t, err);
    }
    if (plait_error_consensus(mesh->world, rc, err) < 0 ||
        make_parts(t, err) < 0) {
        plait_trainer_destroy(t);
        return NULL;
    }
    return t;
}

void plait_trainer_destroy(struct plait_trainer *t)
{
    int saved = errno;

    if (!t)
        return;
    plait_trainer_close_data(t);
    plait_pipeline_destroy(t->pipe);
    plait_gradsync_destroy(t->sync);
    plait_replicas_destroy(t->replicas);
    plait_histograms_destroy(t->histograms);
    plait_optim_destroy(t->optim);
    plait_model_destroy(t->model);
    if (t->loss)
        t->mesh->ops->free(t->mesh->dev, t->loss);
    t->mesh->ops->pinned_free(t->mesh->dev, t->seen);
    t->mesh->ops->event_destroy(t->summed);
    free(t->batch);
    free(t->weights);
    free(t->sums);
    free(t->factor);
    free(t->counts);
    free(t);
    errno = saved;
}

struct plait_model *plait_trainer_model(struct plait_trainer *t)
{
    return t->model;
}

struct plait_optim *plait_trainer_optim(struct plait_trainer *t)
{
    return t->optim;
}

const struct plait_histograms *
plait_trainer_histograms(const struct plait_trainer *t)
{
    return t->histograms;
}

int plait_trainer_settle(struct plait_trainer *t, struct plait_error *err)
{
    return plait_optim_settle(t->optim) < 0 ? plait_trainer_describe(t, err)
                                            : 0;
}

struct plait_loss_scale *plait_trainer_loss_scale(struct plait_trainer *t)
{
    return &t->scale;
}

struct plait_run_state *plait_trainer_state(struct plait_trainer *t)
{
    return &t->state;
}

/* -- the step ------------------------------------------------------------ */

int plait_trainer_describe(struct plait_trainer *t, struct plait_error *err)
{
    const char *why = plait_queue_error(t->mesh->q);
    const struct plait_graphs *graphs = &t->mesh->graphs;
    struct plait_comm *comm;

    if (graphs->failed && graphs->all) {
        errno = ENOTSUP;
        return plait_errorf(err, "train.graph on: %s", graphs->why);
    }
    if (why)
        return plait_errorf(err, "%s", why);
    for (int i = 0; i < PLAIT_NCOMMS; i++) {
        comm = plait_mesh_comm(t->mesh, i);
        if (comm && plait_comm_failed(comm))
            return plait_errorf(err, "%s", plait_comm_error(comm));
    }
    if (plait_comm_failed(t->mesh->world))
        return plait_errorf(err, "%s", plait_comm_error(t->mesh->world));
    return plait_errorf(err, "step failed: %s", strerror(errno));
}

/* Queues the gradients of learner i. */
static int compute_gradients(struct plait_trainer *t, int i)
{
    const struct plait_ops *ops = t->mesh->ops;

    plait_activity_phase(&t->mesh->listeners, PLAIT_PHASE_FORWARD);
    if (ops->fill_zero(t->mesh->q, t->loss, 2 * sizeof(*t->loss)) < 0 ||
        plait_gradsync_begin(t->sync, t->microbatches) < 0 ||
        plait_pipeline_train(t->pipe, t->batch + i * t->microbatches, t->loss) <
            0)
        return -1;
    plait_activity_phase(&t->mesh->listeners, PLAIT_PHASE_REDUCE);
    return plait_gradsync_finish(t->sync);
}

/* The step under way. */
struct step_now {
    int64_t number;
    bool apart;    /* each replica makes its own update */
    double tokens; /* of all replicas, those that count */
    int replicas;  /* with gradients of their own, one per dp coordinate; 1
                      unless they are apart */
    double lr;
    double loss, mtp_loss, norms; /* sums over the learners */
    double norm; /* of this replica's gradient; not finite if any is
                    not, so that all skip the step */
    struct plait_observation seen;
    double max_logit;
    bool left_out; /* the update is skipped: an outlier */
    bool stop;
};

/* The gradients are those of the scaled loss divided by the whole batch's size.
 * The gradient of a part's own mean loss is larger by batch / part. */
static void measure_noise(struct plait_trainer *t, double norm,
                          const struct plait_small_batch *small)
{
    double factor;

    if (!small->sequences)
        return;
    factor = (double)t->batch_size / small->sequences / t->scale.scale;
    plait_noise_scale_add(&t->state.noise, t->batch_size, norm * norm,
                          small->sequences,
                          t->sums[SUM_SMALL] * factor * factor / small->count);
}

/* Sum over all ranks what each knows of learner i's gradients. */
static int share_sums(struct plait_trainer *t, int i, int stop,
                      const struct plait_own_sums *own, struct step_now *now)
{
    int mine = now->apart ? t->mesh->coord.at[PLAIT_DP] : 0;
    double *squares = t->sums + NSUMS, factor = t->factor[i], one;

    memset(t->sums, 0, (NSUMS + now->replicas) * sizeof(*t->sums));
    squares[mine] = own->squares * factor * factor;
    t->sums[SUM_SMALL] = own->small * factor * factor;
    t->sums[SUM_LOSS] = own->loss[0];
    t->sums[SUM_MTP] = own->loss[1];
    /* Replicas that are not apart have the same gradient: count it once. */
    if (t->replicas && !now->apart && t->mesh->coord.at[PLAIT_DP] != 0)
        squares[mine] = 0;
    plait_activity_phase(&t->mesh->listeners, PLAIT_PHASE_DATA); /* the next */
    t->sums[SUM_STOP] = stop || !plait_trainer_data_ahead(t, now->number);
    t->sums[SUM_SHARES] = plait_mesh_share(t->mesh);
    if (plait_comm_host_all_reduce(t->mesh->world, t->sums,
                                   NSUMS + now->replicas, PLAIT_SUM) < 0 ||
        (t->sums[SUM_SHARES] != 0 && plait_mesh_tell(t->mesh) < 0))
        return -1;
    now->loss += t->sums[SUM_LOSS];
    now->mtp_loss += t->sums[SUM_MTP];
    now->stop = t->sums[SUM_STOP] > 0;
    now->norm = sqrt(squares[mine]) / t->scale.scale;
    for (int k = 0; k < now->replicas; k++) {
        one = sqrt(squares[k]) / t->scale.scale;
        now->norms += one / now->replicas;
        if (!isfinite(one))
            now->norm = one;
    }
    measure_noise(t, now->norm, &own->part);
    return 0;
}

static bool overflowed(const struct plait_trainer *t,
                       const struct step_now *now)
{
    return t->scale.dynamic && !isfinite(now->norm);
}

/* Judge the step by sums that all ranks have, so that they decide alike. A step
 * that overflowed is skipped, and counted, with the scale of the loss. */
static void observe_step(struct plait_trainer *t, struct step_now *now)
{
    plait_run_state_observe(&t->state, now->loss / now->tokens,
                            now->norms / learners_of(t), &now->seen);
    now->left_out = now->seen.outlier && t->config->train.skip_outliers &&
                    !overflowed(t, now);
    t->state.skipped += now->left_out;
}

/* Before clipping, without the scale of the loss; where there are histograms,
 * there is one learner. */
static int take_histograms(struct plait_trainer *t, const struct step_now *now)
{
    if (!t->histograms || (now->number + 1) % t->config->log.histograms)
        return 0;
    return plait_histograms_take(t->histograms, t->factor[0] / t->scale.scale);
}

/* Update the weights of learner i. queued: the device clips. */
static int update_weights(struct plait_trainer *t, int i, bool queued,
                          const struct step_now *now)
{
    static const struct plait_doing doing = {.phase = PLAIT_PHASE_OPTIMIZER,
                                             .track = "optimizer",
                                             .name = "optimizer",
                                             .range = "optimizer"};
    struct plait_activity a = plait_activity_begin(&t->mesh->listeners, &doing);
    double clip = t->config->optim.clip;
    double factor = t->factor[i] / t->scale.scale;
    int64_t number = now->number + 1 - t->scale.skipped - t->state.skipped;
    int rc;

    rc = t->replicas ? plait_replicas_before_update(t->replicas) : 0;
    if (rc == 0 && queued)
        rc = plait_optim_step_clipped(t->optim, now->lr, clip, factor, number);
    else if (rc == 0)
        rc = plait_optim_step(t->optim, now->lr,
                              plait_clip(now->left_out ? NAN : now->norm, clip,
                                         t->scale.scale / t->factor[i]),
                              number);
    if (rc == 0 && t->replicas)
        rc = plait_replicas_after_update(t->replicas);
    plait_activity_end(&a);
    return rc;
}

/* Number the n micro-batches of this rank among those whose gradients become
 * one update. Those of the dp ranks alternate; apart, each learner numbers its
 * own. */
static void number_batches(struct plait_trainer *t, int n, bool apart)
{
    int dp = t->mesh->layout.size[PLAIT_DP];

    for (int i = 0; i < n; i++) {
        t->batch[i].index =
            apart ? i % t->microbatches : i * dp + t->mesh->coord.at[PLAIT_DP];
        t->batch[i].total = apart ? t->microbatches : n * dp;
    }
}

/* Whether the host only queues a step, and learns what came of it while the
 * device updates the weights. */
static bool queues_steps(const struct plait_trainer *t)
{
    return plait_optim_clips(t->optim) && learners_of(t) == 1 &&
           !t->config->train.skip_outliers;
}

/* The phase is REDUCE while this waits for the sums: a hang in the work before
 * them must not look like one in the optimizer. */
static int train_queued(struct plait_trainer *t, int stop, struct step_now *now)
{
    struct plait_own_sums own;

    if (compute_gradients(t, 0) < 0 || plait_trainer_queue_sums(t, &own) < 0 ||
        take_histograms(t, now) < 0 || update_weights(t, 0, true, now) < 0)
        return -1;
    plait_activity_phase(&t->mesh->listeners, PLAIT_PHASE_REDUCE);
    if (plait_trainer_take_sums(t, &own) < 0 ||
        share_sums(t, 0, stop, &own, now) < 0)
        return -1;
    observe_step(t, now);
    return 0;
}

/* The step of every learner of this rank, one after the other. */
static int train_learners(struct plait_trainer *t, int stop,
                          struct step_now *now)
{
    struct plait_own_sums own;

    if (t->replicas) {
        plait_gradsync_across(t->sync, !now->apart);
        if (plait_replicas_begin(t->replicas, now->number) < 0)
            return -1;
    }
    for (int i = 0; i < learners_of(t); i++) {
        if (t->replicas && plait_replicas_select(t->replicas, i) < 0)
            return -1;
        if (compute_gradients(t, i) < 0 ||
            plait_trainer_read_sums(t, &own) < 0 ||
            share_sums(t, i, stop, &own, now) < 0 ||
            take_histograms(t, now) < 0)
            return -1;
        if (i == learners_of(t) - 1)
            observe_step(t, now);
        if (update_weights(t, i, false, now) < 0 ||
            plait_optim_qk_clip(t->optim, isfinite(now->norm) && !now->left_out,
                                &now->max_logit) < 0)
            return -1;
    }
    return t->replicas ? plait_replicas_end(t->replicas) : 0;
}

/* Gradients and loss are means over the targets that count. */
static int weigh_targets(struct plait_trainer *t, struct step_now *now)
{
    for (int i = 0; i < learners_of(t); i++)
        t->factor[i] = 1;
    if (!t->masked)
        return 0;
    if (plait_trainer_weigh(t, now->apart,
                            now->tokens / (now->replicas * learners_of(t))) < 0)
        return -1;
    now->tokens = fmax(1, t->counted);
    return 0;
}

/* The next batch. It falls only as far as the noise scale can still be
 * measured: beyond that it would never grow again. */
static void follow_noise(struct plait_trainer *t, double noise_scale)
{
    const struct plait_job_config *c = t->config;
    const struct plait_layout *layout = &t->mesh->layout;
    struct plait_growth *g = &t->state.growth;

    plait_growth_follow(g, c, plait_growth_unit(c, layout), noise_scale);
    while (c->batch.growth.is_auto && g->batch < t->batch_size &&
           plait_small_batch_choose(c, layout, g->batch,
                                    g->batch / plait_trainer_batch_unit(t),
                                    NULL)
                   .sequences == 0)
        g->batch *= 2;
}

int plait_trainer_step(struct plait_trainer *t, int64_t step, int stop,
                       struct plait_step_result *result,
                       struct plait_error *err)
{
    const struct plait_job_config *c = t->config;
    struct step_now now = {.number = step,
                           .max_logit = NAN,
                           .apart = plait_sync_apart(&c->sync, step)};
    int n;

    if (set_batch(t, plait_growth_batch(&t->state.growth, c, step), err) < 0)
        return -1;
    n = t->microbatches * learners_of(t);
    now.tokens = (double)t->batch_size * c->model.seq_len;
    now.replicas = now.apart ? t->mesh->layout.size[PLAIT_DP] : 1;
    now.lr = plait_lr(&c->lr, plait_lr_peak(&c->lr, c->optim.lr, t->batch_size),
                      step, c->train.steps);
    /* A learner's gradient is the mean over its own share of the batch. */
    if (plait_trainer_batch(t, t->loader, n,
                            t->scale.scale * now.replicas * learners_of(t) /
                                now.tokens,
                            err) < 0)
        return -1;
    plait_trainer_noise(t, n);
    number_batches(t, n, now.apart);
    if (weigh_targets(t, &now) < 0 ||
        (queues_steps(t) ? train_queued(t, stop, &now)
                         : train_learners(t, stop, &now)) < 0)
        return plait_trainer_describe(t, err);
    result->skipped = overflowed(t, &now);
    plait_loss_scale_update(&t->scale, result->skipped);
    result->skipped |= now.left_out;
    t->state.samples += t->batch_size;
    follow_noise(t, now.seen.noise_scale);
    result->batch = t->batch_size;
    result->counted = t->masked ? t->counted : NAN;
    result->loss = now.loss / now.tokens;
    result->mtp_loss = c->model.mtp_layers ? now.mtp_loss / now.tokens : NAN;
    result->grad_norm = now.norms / learners_of(t);
    result->max_logit = now.max_logit;
    result->lr = now.lr;
    result->seen = now.seen;
    result->stop = now.stop;
    return 0;
}
