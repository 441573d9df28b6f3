/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/optim.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/optim/host.h"
#include "runtime/parallel/replay.h"
#include "runtime/parallel/shard.h"

/* All of a step that is not the same every time. */
struct now {
    struct plait_adamw_now adamw;
    float grad_scale;
};

struct plait_optim {
    struct plait_model *model;
    struct plait_shards *shards;
    int nslices;
    struct plait_optim_slice *slices;
    /* The same, as the step's ops take them, neighbours that are treated
     * alike joined to one; region i has the runs before ends[i]. */
    int nruns, nsquares;
    struct plait_adamw_run *runs;
    struct plait_floats *squares;      /* what this rank adds to the norm */
    int *ends;                         /* [regions] */
    struct plait_gathering *gathering; /* [regions] */
    double *sum;                       /* device */
    struct now *now;                   /* device */
    struct plait_replay norm, step;
    struct plait_optim_host *host; /* with offload alone */
};

/* What of tensor t lies in its region's shard of this rank. */
static int slice_of(const struct plait_shard *s, const struct plait_tensor *t,
                    struct plait_optim_slice *slice)
{
    size_t begin = t->offset, end = t->offset + t->count;

    if (begin < s->first)
        begin = s->first;
    if (end > s->first + s->owned)
        end = s->first + s->owned;
    if (begin >= end)
        return 0;
    slice->tensor = t;
    slice->first = begin - t->offset;
    slice->count = end - begin;
    slice->master = s->master + (begin - s->first);
    slice->m = s->m + (begin - s->first);
    slice->v = s->v + (begin - s->first);
    return 1;
}

/* Of equal copies, one rank's counts. */
static bool counts(const struct plait_optim *optim,
                   const struct plait_optim_slice *slice)
{
    const struct plait_tensor *t = slice->tensor;
    const struct plait_shard *s = &optim->shards->shard[t->region];
    const struct plait_coord *at = &optim->model->par->coord;

    if (s->parts == 1 && plait_comm_rank(s->comm) != 0)
        return false;
    if (s->replicas && plait_comm_rank(s->replicas) != 0)
        return false;
    if (t->tied && at->at[PLAIT_PP] != 0)
        return false;
    return at->at[PLAIT_TP] % t->tp_replicas == 0;
}

static struct plait_adamw_run run_of(const struct plait_optim *optim,
                                     const struct plait_optim_slice *slice)
{
    const struct plait_model *model = optim->model;
    const struct plait_tensor *t = slice->tensor;
    const struct plait_shard *s = &optim->shards->shard[t->region];
    size_t at = slice->master - s->master;

    return (struct plait_adamw_run){
        .master = slice->master,
        .m = slice->m,
        .v = slice->v,
        .grad = s->grad + at,
        .weight = (char *)s->weight + at * plait_dtype_size(model->type),
        .n = slice->count,
        .first = s->first + at,
        .weight_decay = t->decay ? model->config->optim.weight_decay : 0,
    };
}

/* first: no run of the same region was before. */
static void add_run(struct plait_optim *optim,
                    const struct plait_adamw_run *run, bool first)
{
    struct plait_adamw_run *last = optim->runs + optim->nruns - 1;

    if (!first && last->master + last->n == run->master &&
        last->weight_decay == run->weight_decay)
        last->n += run->n;
    else
        optim->runs[optim->nruns++] = *run;
}

static void add_squares(struct plait_optim *optim,
                        const struct plait_adamw_run *run)
{
    struct plait_floats *last = optim->squares + optim->nsquares - 1;

    if (optim->nsquares > 0 && last->x + last->n == run->grad)
        last->n += run->n;
    else
        optim->squares[optim->nsquares++] =
            (struct plait_floats){run->grad, run->n};
}

/* Slices are in the order of the regions. */
static void list_runs(struct plait_optim *optim)
{
    int i, s = 0;

    for (i = 0; i < optim->shards->n; i++) {
        int begin = s;

        for (; s < optim->nslices && optim->slices[s].tensor->region == i;
             s++) {
            struct plait_adamw_run run = run_of(optim, &optim->slices[s]);

            add_run(optim, &run, s == begin);
            if (counts(optim, &optim->slices[s]))
                add_squares(optim, &run);
        }
        optim->ends[i] = optim->nruns;
    }
}

static bool offloaded(const struct plait_optim *optim)
{
    return optim->model->config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER;
}

struct plait_optim *plait_optim_create(struct plait_model *model,
                                       struct plait_error *err)
{
    struct plait_optim *optim = calloc(1, sizeof(*optim));
    struct plait_parallel *par = model->par;
    int i;

    if (!optim) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    optim->model = model;
    optim->shards = plait_shards_create(model, err);
    if (!optim->shards)
        goto error;
    if (offloaded(optim))
        optim->host = plait_optim_host_create(optim->shards);
    if (offloaded(optim) && !optim->host) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    optim->slices = calloc(model->ntensors, sizeof(*optim->slices));
    optim->runs = calloc(model->ntensors, sizeof(*optim->runs));
    optim->squares = calloc(model->ntensors, sizeof(*optim->squares));
    optim->ends = calloc(optim->shards->n, sizeof(*optim->ends));
    optim->gathering = calloc(optim->shards->n, sizeof(*optim->gathering));
    optim->sum = par->ops->alloc(par->dev, sizeof(*optim->sum));
    optim->now = par->ops->alloc(par->dev, sizeof(*optim->now));
    if (!optim->slices || !optim->runs || !optim->squares || !optim->ends ||
        !optim->gathering || !optim->sum || !optim->now) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    for (i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];

        optim->nslices += slice_of(&optim->shards->shard[t->region], t,
                                   &optim->slices[optim->nslices]);
    }
    list_runs(optim);
    return optim;

error:
    plait_optim_destroy(optim);
    return NULL;
}

void plait_optim_destroy(struct plait_optim *optim)
{
    struct plait_parallel *par;
    int saved = errno;

    if (!optim)
        return;
    par = optim->model->par;
    plait_replay_forget(&optim->norm, par);
    plait_replay_forget(&optim->step, par);
    par->ops->free(par->dev, optim->sum);
    par->ops->free(par->dev, optim->now);
    plait_optim_host_destroy(optim->host);
    free(optim->slices);
    free(optim->runs);
    free(optim->squares);
    free(optim->ends);
    free(optim->gathering);
    plait_shards_destroy(optim->shards);
    free(optim);
    errno = saved;
}

int plait_optim_slices(const struct plait_optim *optim,
                       const struct plait_optim_slice **slices)
{
    *slices = optim->slices;
    return optim->nslices;
}

struct plait_shards *plait_optim_shards(struct plait_optim *optim)
{
    return optim->shards;
}

int plait_optim_read(const struct plait_optim *optim, void *to,
                     const void *state, size_t bytes)
{
    const struct plait_shards *s = optim->shards;

    return s->state_ops->to_host(s->state_q, to, state, bytes);
}

int plait_optim_write(const struct plait_optim *optim, void *state,
                      const void *from, size_t bytes)
{
    const struct plait_shards *s = optim->shards;

    return s->state_ops->to_device(s->state_q, state, from, bytes);
}

/* -- weights ------------------------------------------------------------- */

/* A shard's weights from its masters. */
static int follow_masters(struct plait_optim *optim,
                          const struct plait_shard *s)
{
    struct plait_model *model = optim->model;

    if (optim->host)
        return plait_optim_host_follow(optim->host, s);
    if ((void *)s->master == s->weight)
        return 0;
    return model->par->ops->cast(model->par->q, model->type, s->weight,
                                 PLAIT_F32, s->master, s->part);
}

/* Whether the step puts a region's weights together from several owners'
 * parts. ZeRO 3 gathers block by block when needed. */
static bool gathers(const struct plait_optim *optim, int i)
{
    return optim->shards->zero != 3 && optim->shards->shard[i].parts > 1;
}

/* The weights everybody reads follow the shards their owners changed: the
 * region's begin to. */
static int gather_region(struct plait_optim *optim, int i)
{
    struct plait_model *model = optim->model;
    struct plait_shard *s = &optim->shards->shard[i];

    if (!gathers(optim, i))
        return 0;
    if (optim->host && plait_optim_host_finish(optim->host) < 0)
        return -1;
    return plait_shard_gather(model->par, s, s->weight, s->region->weight,
                              model->type, &optim->gathering[i]);
}

static int finish_gathering(struct plait_optim *optim)
{
    int i;

    for (i = 0; i < optim->shards->n; i++)
        if (plait_shard_gathered(optim->model->par, &optim->gathering[i]) < 0)
            return -1;
    return 0;
}

/* The model learns it; of what ZeRO 3 gathers, zero.c tells it. */
static void announce(struct plait_optim *optim)
{
    int i;

    for (i = 0; i < optim->shards->n && optim->shards->zero < 3; i++)
        plait_model_weights_changed(optim->model,
                                    optim->shards->shard[i].region);
}

int plait_optim_refresh(struct plait_optim *optim, struct plait_error *err)
{
    struct plait_model *model = optim->model;
    int i;

    for (i = 0; i < optim->shards->n; i++) {
        if (follow_masters(optim, &optim->shards->shard[i]) < 0)
            return plait_errorf(err, "cannot cast the weights: %s",
                                plait_queue_error(model->par->q));
        if (gather_region(optim, i) < 0)
            return plait_errorf(err, "cannot gather the weights");
    }
    if (finish_gathering(optim) < 0)
        return plait_errorf(err, "cannot gather the weights");
    announce(optim);
    return 0;
}

int plait_optim_init(struct plait_optim *optim, uint64_t seed,
                     struct plait_error *err)
{
    struct plait_parallel *par = optim->model->par;
    float *host = NULL;
    size_t room = 0;
    int i, rc = 0;

    for (i = 0; i < optim->nslices; i++)
        if (optim->slices[i].tensor->count > room)
            room = optim->slices[i].tensor->count;
    host = malloc(room * sizeof(*host) + 1);
    if (!host)
        return plait_errorf(err, "out of memory");
    for (i = 0; i < optim->nslices && rc == 0; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];

        plait_model_init_tensor(optim->model, s->tensor, seed, host);
        rc = plait_optim_write(optim, s->master, host + s->first,
                               s->count * sizeof(*host));
    }
    free(host);
    if (rc < 0)
        return plait_errorf(err, "cannot store the initial weights: %s",
                            plait_queue_error(par->q));
    return plait_optim_refresh(optim, err);
}

/* -- the step ------------------------------------------------------------ */

/* Queues the work, or repeats it as it was recorded. */
static int run(struct plait_optim *optim, struct plait_replay *replay,
               int (*work)(void *arg))
{
    struct plait_parallel *par = optim->model->par;

    return par->graphs.optim ? plait_replay_run(replay, par, work, optim)
                             : work(optim);
}

static int queue_norm(void *arg)
{
    struct plait_optim *optim = arg;
    struct plait_parallel *par = optim->model->par;

    if (par->ops->fill_zero(par->q, optim->sum, sizeof(*optim->sum)) < 0)
        return -1;
    return par->ops->sum_squares(par->q, optim->sum, optim->squares,
                                 optim->nsquares);
}

int plait_optim_sum_squares(struct plait_optim *optim, double *sum)
{
    struct plait_parallel *par = optim->model->par;

    if (run(optim, &optim->norm, queue_norm) < 0)
        return -1;
    return par->ops->to_host(par->q, sum, optim->sum, sizeof(*sum));
}

static int step_runs(struct plait_optim *optim, const struct plait_adamw *p,
                     int begin, int end)
{
    struct plait_model *model = optim->model;
    int i;

    if (!optim->host)
        return model->par->ops->adamw(model->par->q, p, model->type,
                                      optim->runs + begin, end - begin);
    for (i = begin; i < end; i++)
        if (plait_optim_host_step(optim->host, p, &optim->runs[i]) < 0)
            return -1;
    return 0;
}

/* A region's weights are gathered beside the step of the next; those that
 * nobody gathers are stepped all at once. */
static int step_regions(struct plait_optim *optim, const struct plait_adamw *p)
{
    int i, done = 0;

    for (i = 0; i < optim->shards->n; i++) {
        if (!gathers(optim, i))
            continue;
        if (step_runs(optim, p, done, optim->ends[i]) < 0 ||
            gather_region(optim, i) < 0)
            return -1;
        done = optim->ends[i];
    }
    return step_runs(optim, p, done, optim->nruns);
}

static struct plait_adamw rule(const struct plait_optim *optim)
{
    const struct plait_optim_config *c = &optim->model->config->optim;

    return (struct plait_adamw){
        .beta1 = c->betas[0], .beta2 = c->betas[1], .eps = c->eps, .step = 1};
}

static int queue_step(void *arg)
{
    struct plait_optim *optim = arg;
    struct plait_adamw p = rule(optim);

    p.now = &optim->now->adamw;
    p.grad_scale = &optim->now->grad_scale;
    if (step_regions(optim, &p) < 0)
        return -1;
    return finish_gathering(optim);
}

static int step_on_host(struct plait_optim *optim, double lr, float grad_scale,
                        int64_t step)
{
    struct plait_adamw p = rule(optim);

    if (!isfinite(grad_scale))
        return 0; /* skipped: no weight has changed */
    p.lr = lr;
    p.step = step;
    p.grad_scale = &grad_scale;
    if (step_regions(optim, &p) < 0 ||
        plait_optim_host_finish(optim->host) < 0 || finish_gathering(optim) < 0)
        return -1;
    announce(optim);
    return 0;
}

int plait_optim_step(struct plait_optim *optim, double lr, float grad_scale,
                     int64_t step)
{
    const struct plait_optim_config *c = &optim->model->config->optim;
    struct plait_parallel *par = optim->model->par;
    struct now now = {
        .adamw.lr = lr,
        .adamw.correct1 = 1 / (1 - pow((float)c->betas[0], step)),
        .adamw.correct2 = 1 / (1 - pow((float)c->betas[1], step)),
        .grad_scale = grad_scale,
    };

    if (offloaded(optim))
        return step_on_host(optim, lr, grad_scale, step);
    if (par->ops->to_device(par->q, optim->now, &now, sizeof(now)) < 0 ||
        run(optim, &optim->step, queue_step) < 0)
        return -1;
    announce(optim);
    return 0;
}
