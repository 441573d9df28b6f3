/* SPDX-License-Identifier: Apache-2.0 */
/* Which settings of the section sync go together, and with which others. */
#include <inttypes.h>

#include "topology/job/fits.h"
#include "topology/job/stage.h"

/* Keys that only one mode takes. */
static int check_keys(const struct plait_sync_config *s, int64_t steps,
                      struct plait_error *err)
{
    const char *mode = plait_sync_mode_names[s->mode];

    if (s->mode == PLAIT_SYNC_POST_LOCAL && steps < 2)
        return plait_errorf(err,
                            "sync.mode post-local: train.steps %" PRId64
                            " must be at least 2",
                            steps);
    if (s->mode == PLAIT_SYNC_POST_LOCAL && (s->from < 1 || s->from >= steps))
        return plait_errorf(err,
                            "sync.mode post-local: sync.from %" PRId64
                            " must be from 1 to below train.steps %" PRId64,
                            s->from, steps);
    if (s->mode != PLAIT_SYNC_POST_LOCAL && s->from)
        return plait_errorf(
            err, "sync.from %" PRId64 ": sync.mode must be post-local, not %s",
            s->from, mode);
    if (s->mode != PLAIT_SYNC_SMA && plait_sync_many(s))
        return plait_errorf(
            err,
            "sync.learners above 1, or auto: sync.mode must be sma, not %s",
            mode);
    if (s->mode == PLAIT_SYNC_EACH && s->steps > 1)
        return plait_errorf(err,
                            "sync.steps %" PRId64
                            ": sync.mode must be local, post-local, sma or "
                            "diloco, not each",
                            s->steps);
    return 0;
}

/* Each fragment has a layer, and a step of its own to meet after. */
static int check_fragments(const struct plait_job_config *c,
                           struct plait_error *err)
{
    const struct plait_sync_config *s = &c->sync;

    if (plait_sync_fragments(s) == 1)
        return 0;
    if (s->mode != PLAIT_SYNC_DILOCO)
        return plait_errorf(err,
                            "sync.fragments %d: sync.mode must be diloco, not "
                            "%s",
                            s->fragments, plait_sync_mode_names[s->mode]);
    if (plait_is_image_model(&c->model))
        return plait_errorf(err,
                            "sync.fragments %d is for gpt2 and llama "
                            "models",
                            s->fragments);
    if (s->fragments > c->model.layers || s->fragments > plait_sync_steps(s))
        return plait_errorf(err,
                            "sync.fragments %d must be at most model.layers %d "
                            "and sync.steps %" PRId64,
                            s->fragments, c->model.layers, plait_sync_steps(s));
    return 0;
}

/* Why replicas that differ cannot be trained with these settings; NULL: they
 * can. */
static const char *reason_against(const struct plait_job_config *c)
{
    const struct plait_parallel_config *p = &c->parallel;

    if (p->zero)
        return "parallel.zero must be 0: it would share out one optimizer "
               "state among replicas that differ";
    if (p->layout.size[PLAIT_EP] > 1)
        return "ep must be 1: it would share out one set of experts among "
               "replicas that differ";
    if (p->offload & PLAIT_OFFLOAD_OPTIMIZER)
        return "parallel.offload must be none or activations: it would move "
               "one optimizer state for replicas that differ";
    if (plait_optim_is_averaged(&c->optim))
        return "optim.name must be adamw, sgd or lion, not schedulefree: the "
               "replicas would be averaged at weights other than those they "
               "train";
    if (!plait_optimizers[c->optim.kind].separate)
        return "optim.name must be adamw, sgd or lion: the others need norms, "
               "scales or products of many weights, which a single replica "
               "does not compute";
    if (p->grad_sync == PLAIT_GRAD_NAIVE)
        return "parallel.grad_sync must be bucketed or flat, not naive";
    if (p->all_reduce == PLAIT_ALL_REDUCE_HIERARCHICAL)
        return "parallel.all_reduce must be auto or flat, not hierarchical";
    if (c->train.graph == PLAIT_GRAPH_ON)
        return "train.graph must be auto or off: the replicas' meetings are "
               "not recorded";
    if (plait_sync_many(&c->sync) && c->train.precision == PLAIT_FP16)
        return "with sync.learners above 1, or auto, train.precision must be "
               "fp32 or bf16, not fp16: learners overflow one by one, but "
               "share a loss scale";
    return NULL;
}

static int check_batch(const struct plait_job_config *c, int64_t batch,
                       const char *what, int dp, struct plait_error *err)
{
    int learners = plait_sync_learners(&c->sync);
    int64_t unit = (int64_t)dp * learners * c->train.micro_batch;
    char nearest[64];

    if (batch % unit == 0)
        return 0;
    plait_fits_name_nearest(batch, unit, nearest);
    return plait_errorf(err,
                        "%s %" PRId64 " is not divisible by dp %d * "
                        "sync.learners %d * train.micro_batch %d%s",
                        what, batch, dp, learners, c->train.micro_batch,
                        nearest);
}

/* Narrow numbers are gathered, not summed: many replicas send more of them. */
static int check_form(const struct plait_sync_config *s, int dp,
                      struct plait_error *err)
{
    const char *form = plait_sync_gradient_names[s->gradients];
    int most = s->gradients == PLAIT_SYNC_FP8 ? 8 : 4;

    if (s->gradients == PLAIT_SYNC_FP32)
        return 0;
    if (s->mode != PLAIT_SYNC_DILOCO)
        return plait_errorf(err,
                            "sync.gradients %s: sync.mode must be diloco, not "
                            "%s",
                            form, plait_sync_mode_names[s->mode]);
    if (dp >= most)
        return plait_errorf(err,
                            "sync.gradients %s: dp must be below %d, not %d: "
                            "with so many replicas it sends no fewer bytes "
                            "than fp32; use fp32",
                            form, most, dp);
    return 0;
}

/* Only diloco sends with a delay. What a fragment has sent arrives before it
 * sends again. */
static int check_delay(const struct plait_sync_config *s,
                       struct plait_error *err)
{
    const char *mode = plait_sync_mode_names[s->mode];

    if (s->delay > 0 && s->mode != PLAIT_SYNC_DILOCO)
        return plait_errorf(err,
                            "sync.delay %d: sync.mode must be diloco, not %s",
                            s->delay, mode);
    if (s->delay > 0 && s->delay >= plait_sync_steps(s))
        return plait_errorf(err,
                            "sync.delay %d must be below sync.steps %" PRId64,
                            s->delay, plait_sync_steps(s));
    if (s->delay == 0 && s->mixing >= 0 &&
        (s->mixing > 0 || s->mode == PLAIT_SYNC_DILOCO))
        return plait_errorf(err,
                            "sync.mixing %g: sync.delay must be at least 1; "
                            "without a delay sync.mixing has no effect",
                            s->mixing);
    return 0;
}

/* Each learner takes a whole number of micro-batches of every step. */
static int check_learners(const struct plait_job_config *c, int dp,
                          struct plait_error *err)
{
    const struct plait_numbers *growth = &c->batch.growth;

    if (plait_sync_learners(&c->sync) == 1)
        return 0;
    if (check_batch(c, c->train.global_batch, "train.global_batch", dp, err) <
        0)
        return -1;
    for (int i = 0; i < growth->n; i++)
        if (check_batch(c, growth->at[2 * i + 1], "batch.growth:", dp, err) < 0)
            return -1;
    return 0;
}

int plait_fits_sync(const struct plait_job_config *c, int dp,
                    struct plait_error *err)
{
    const char *why;

    if (check_keys(&c->sync, c->train.steps, err) < 0 ||
        check_fragments(c, err) < 0 || check_form(&c->sync, dp, err) < 0 ||
        check_delay(&c->sync, err) < 0 || check_learners(c, dp, err) < 0)
        return -1;
    why = plait_sync_parts(&c->sync) ? reason_against(c) : NULL;
    if (!why)
        return 0;
    return plait_errorf(err, "sync.mode %s: %s",
                        plait_sync_mode_names[c->sync.mode], why);
}
