/* SPDX-License-Identifier: Apache-2.0 */
/* A step of the optimizer on this rank: sums of squares, factors, and the
 * operation `update` on each slice. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/philox.h"
#include "runtime/comm/consensus.h"
#include "runtime/optim/optim_private.h"
#include "topology/base/hash.h"

/* -- memory of a step ----------------------------------------------------- */

bool plait_optim_counts(const struct plait_optim *optim,
                        const struct plait_optim_slice *slice)
{
    const struct plait_tensor *t = slice->tensor;
    const struct plait_shard *s = &optim->shards->shard[t->region];
    const struct plait_coord *at = &optim->model->mesh->coord;

    if (s->parts == 1 && plait_comm_rank(s->comm) != 0)
        return false;
    if (s->replicas && plait_comm_rank(s->replicas) != 0)
        return false;
    if (t->tied && at->at[PLAIT_PP] != 0)
        return false;
    return at->at[PLAIT_TP] % t->tp_replicas == 0;
}

/* Prepares the factors and their memory. Collective. */
static int open_factors(struct plait_optim *optim, struct plait_error *err)
{
    struct plait_mesh *mesh = optim->model->mesh;
    size_t n = (size_t)optim->nslices + 1; /* not 0 even without slices */
    size_t sums = n * PLAIT_SUMS_PER_TENSOR * sizeof(*optim->host_sums);
    bool *counts = calloc(n, sizeof(*counts));
    int rc = 0;

    optim->host_sums = malloc(sums);
    optim->host_factors = calloc(n, sizeof(*optim->host_factors));
    optim->tensor_state = calloc(n, sizeof(*optim->tensor_state));
    optim->device_sums = mesh->ops->alloc(mesh->dev, sums);
    optim->device_factors =
        mesh->ops->alloc(mesh->dev, n * sizeof(*optim->device_factors));
    if (!counts || !optim->host_sums || !optim->host_factors ||
        !optim->tensor_state || !optim->device_sums || !optim->device_factors)
        rc = plait_errorf(err, "out of memory");
    rc = plait_error_consensus(mesh->world, rc, err);
    for (int i = 0; rc == 0 && i < optim->nslices; i++)
        counts[i] = plait_optim_counts(optim, &optim->slices[i]);
    if (rc == 0)
        optim->tensors = plait_tensor_sums_create(mesh->world, optim->slices,
                                                  counts, optim->nslices, err);
    free(counts);
    return optim->tensors ? 0 : -1;
}

int plait_optim_prepare_step(struct plait_optim *optim, struct plait_error *err)
{
    struct plait_mesh *mesh = optim->model->mesh;
    int ntensors = optim->model->ntensors;

    if (optim->rule->factor && open_factors(optim, err) < 0)
        return -1;
    optim->runs = calloc(ntensors, sizeof(*optim->runs));
    optim->directed = calloc(ntensors, sizeof(*optim->directed));
    optim->class = calloc(ntensors, sizeof(*optim->class));
    optim->class8 = calloc(ntensors, sizeof(*optim->class8));
    optim->squares = calloc(ntensors, sizeof(*optim->squares));
    optim->ends = calloc(optim->shards->n, sizeof(*optim->ends));
    optim->runs8 = calloc(ntensors, sizeof(*optim->runs8));
    optim->ends8 = calloc(optim->shards->n, sizeof(*optim->ends8));
    optim->sum = mesh->ops->alloc(mesh->dev, 2 * sizeof(*optim->sum));
    optim->now = mesh->ops->alloc(mesh->dev, sizeof(*optim->now));
    if (!optim->runs || !optim->directed || !optim->squares || !optim->ends ||
        !optim->class || !optim->class8 || !optim->runs8 || !optim->ends8 ||
        !optim->sum || !optim->now)
        return plait_errorf(err, "out of memory");
    plait_optim_list_runs(optim);
    return 0;
}

void plait_optim_forget_step(struct plait_optim *optim)
{
    struct plait_mesh *mesh = optim->model->mesh;

    plait_graph_capture_reset(&optim->norm, mesh);
    plait_graph_capture_reset(&optim->sums, mesh);
    plait_graph_capture_reset(&optim->step, mesh);
    mesh->ops->free(mesh->dev, optim->sum);
    mesh->ops->free(mesh->dev, optim->now);
    mesh->ops->free(mesh->dev, optim->device_sums);
    mesh->ops->free(mesh->dev, optim->device_factors);
    plait_tensor_sums_destroy(optim->tensors);
    free(optim->host_sums);
    free(optim->host_factors);
    free(optim->tensor_state);
    free(optim->runs);
    free(optim->directed);
    free(optim->class);
    free(optim->class8);
    free(optim->squares);
    free(optim->ends);
    free(optim->runs8);
    free(optim->ends8);
}

bool plait_optim_draws(const struct plait_optim *optim)
{
    const struct plait_optim_config *c = &optim->model->config->optim;

    return c->moments == PLAIT_MOMENTS_BF16 || c->masters == PLAIT_MASTERS_BF16;
}

/* What a step rounds by: a function of train.seed and the
 * step alone. */
static uint64_t rounding_seed(const struct plait_optim *optim, int64_t step)
{
    uint64_t name = plait_hash_text(PLAIT_HASH_START, "rounding");
    uint32_t x[4];

    plait_philox(optim->model->config->train.seed, (uint64_t)step, name, x);
    return (uint64_t)x[1] << 32 | x[0];
}

/* -- factors of whole tensors --------------------------------------------- */

static struct plait_update update_of(const struct plait_optim *optim)
{
    const struct plait_optim_config *c = &optim->model->config->optim;

    return (struct plait_update){
        .rule = optim->rule->update,
        .type = optim->model->type,
        .states = optim->shards->state_type,
        .random_states = c->moments == PLAIT_MOMENTS_BF16,
        .random_weights = c->masters == PLAIT_MASTERS_BF16,
        .beta1 = c->betas[0],
        .beta2 = c->betas[1],
        .eps = c->eps,
        .momentum = c->momentum,
        .nesterov = c->nesterov,
        .step = 1};
}

/* The same, but what changes from step to step is read from device memory. */
static struct plait_update update_now(const struct plait_optim *optim)
{
    struct plait_update p = update_of(optim);

    p.now = optim->now->update;
    p.grad_scale = &optim->now->grad_scale;
    return p;
}

/* The same for the runs of a class. */
static struct plait_update of_class(const struct plait_optim *optim,
                                    const struct plait_update *p, int class)
{
    struct plait_update own = *p;

    own.lr *= optim->classes[class].rate;
    own.eps *= optim->classes[class].eps;
    if (p->now)
        own.now = optim->now->update + class;
    return own;
}

static int queue_sums(void *arg)
{
    struct plait_optim *optim = arg;
    struct plait_mesh *mesh = optim->model->mesh;
    struct plait_update p = update_now(optim);
    size_t bytes =
        optim->nslices * PLAIT_SUMS_PER_TENSOR * sizeof(*optim->device_sums);

    if (mesh->ops->fill_zero(mesh->q, optim->device_sums, bytes) < 0)
        return -1;
    return mesh->ops->update_sums(mesh->q, &p, optim->runs, optim->nruns);
}

/* Computes host_factors from host_sums. */
static void make_factors(struct plait_optim *optim, double lr, double scale,
                         int64_t step)
{
    const struct plait_optim_config *c = &optim->model->config->optim;
    bool of_gradient = optim->rule->update != PLAIT_UPDATE_LAMB &&
                       optim->rule->update != PLAIT_UPDATE_DIRECTION;

    for (int i = 0; i < optim->nslices; i++) {
        const double *sums = optim->host_sums + i * PLAIT_SUMS_PER_TENSOR;
        const struct plait_tensor *t = optim->slices[i].tensor;
        struct plait_tensor_norms norms = {
            .weight = sqrt(sums[0]),
            .other = sqrt(sums[1]) * (of_gradient ? scale : 1),
            .elements = (double)t->shape[0] * t->shape[1],
            .step = step};

        optim->host_factors[i] = (float)optim->rule->factor(
            c, lr, t->decay, &norms, &optim->tensor_state[i]);
    }
}

/* Computes each slice's factor and copies it to the device. Collective. */
static int set_factors(struct plait_optim *optim, double lr, float grad_scale,
                       int64_t step)
{
    struct plait_mesh *mesh = optim->model->mesh;
    size_t n = optim->nslices;

    if (plait_optim_run_captured(optim, &optim->sums, queue_sums) < 0 ||
        mesh->ops->to_host(mesh->q, optim->host_sums, optim->device_sums,
                           n * PLAIT_SUMS_PER_TENSOR *
                               sizeof(*optim->host_sums)) < 0 ||
        plait_tensor_sums_reduce(optim->tensors, optim->host_sums) < 0)
        return -1;
    make_factors(optim, lr, grad_scale, step);
    return mesh->ops->to_device(mesh->q, optim->device_factors,
                                optim->host_factors,
                                n * sizeof(*optim->host_factors));
}

/* -- updates ------------------------------------------------------------- */

/* Updates runs begin .. end - 1, which are of one class and all along
 * directions or none. Directions are already scaled. */
static int update_runs(struct plait_optim *optim, const struct plait_update *p,
                       int begin, int end)
{
    struct plait_model *model = optim->model;
    struct plait_update along = of_class(optim, p, optim->class[begin]);

    if (optim->directed[begin]) {
        along.rule = PLAIT_UPDATE_DIRECTION;
        along.grad_scale = NULL;
    }
    return model->mesh->ops->update(model->mesh->q, &along, optim->runs + begin,
                                    end - begin);
}

/* Number of runs before region i. */
static int runs_before(const int *ends, int i)
{
    return i ? ends[i - 1] : 0;
}

/* Updates runs begin .. end - 1 of those whose states have 8 bits, each class
 * of consecutive ones by one call. */
static int step_runs8(struct plait_optim *optim, const struct plait_update *p,
                      int begin, int end)
{
    const struct plait_mesh *mesh = optim->model->mesh;

    for (int i = begin, next; i < end; i = next) {
        struct plait_update own = of_class(optim, p, optim->class8[i]);

        for (next = i + 1;
             next < end && optim->class8[next] == optim->class8[i];)
            next++;
        if (mesh->ops->update8(mesh->q, &own, optim->runs8 + i, next - i) < 0)
            return -1;
    }
    return 0;
}

static int step_run_on_host(struct plait_optim *optim,
                            const struct plait_update *p, int i)
{
    struct plait_update own = of_class(optim, p, optim->class[i]);

    return plait_optim_host_step(optim->host, &own, &optim->runs[i]);
}

/* Updates regions first .. last-1. */
static int step_runs(struct plait_optim *optim, const struct plait_update *p,
                     int first, int last)
{
    int begin = runs_before(optim->ends, first);
    int end = runs_before(optim->ends, last);
    int i, next;

    if (step_runs8(optim, p, runs_before(optim->ends8, first),
                   runs_before(optim->ends8, last)) < 0)
        return -1;
    for (i = begin; i < end && optim->host; i++)
        if (step_run_on_host(optim, p, i) < 0)
            return -1;
    for (; i < end; i = next) {
        for (next = i + 1; next < end &&
                           optim->directed[next] == optim->directed[i] &&
                           optim->class[next] == optim->class[i];)
            next++;
        if (update_runs(optim, p, i, next) < 0)
            return -1;
    }
    return 0;
}

/* Adds to statistics what was summed up for them, unscaled. Call before an
 * optimizer modifies the gradients. */
static int add_statistics(struct plait_optim *optim)
{
    struct plait_mesh *mesh = optim->model->mesh;

    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];
        const struct plait_shard *shard =
            &optim->shards->shard[s->tensor->region];

        if (s->tensor->statistic && !s->tensor->balance &&
            mesh->ops->add(mesh->q,
                           &(struct plait_add){.type = PLAIT_F32,
                                               .out = s->master,
                                               .a = s->master,
                                               .b = shard->grad +
                                                    (s->master - shard->master),
                                               .n = s->count}) < 0)
            return -1;
    }
    return 0;
}

/* A region's weights are gathered while the next region is updated; consecutive
 * regions without gathering are updated together. */
static int step_regions(struct plait_optim *optim, const struct plait_update *p)
{
    int done = 0;

    for (int i = 0; i < optim->shards->n; i++) {
        if (!plait_shards_gathers(optim->shards, i))
            continue;
        if (step_runs(optim, p, done, i + 1) < 0 ||
            plait_optim_gather_region(optim, i) < 0)
            return -1;
        done = i + 1;
    }
    return step_runs(optim, p, done, optim->shards->n);
}

static int queue_step(void *arg)
{
    struct plait_optim *optim = arg;
    struct plait_update p = update_now(optim);

    if (step_regions(optim, &p) < 0)
        return -1;
    return plait_optim_finish_gathering(optim);
}

static int step_on_host(struct plait_optim *optim, double lr, float grad_scale,
                        int64_t step)
{
    struct plait_update p = update_of(optim);

    p.lr = lr;
    p.step = step;
    p.seed = rounding_seed(optim, step);
    p.grad_scale = &grad_scale;
    if (step_regions(optim, &p) < 0 ||
        plait_optim_host_finish(optim->host) < 0 ||
        plait_optim_finish_gathering(optim) < 0)
        return -1;
    plait_optim_announce(optim);
    return 0;
}

static void set_now(struct plait_optim *optim, double lr, int64_t step,
                    struct plait_step_values *now)
{
    const struct plait_job_config *job = optim->model->config;
    const struct plait_optim_config *c = &job->optim;
    double mix =
        plait_optim_is_averaged(c)
            ? plait_lr_share(&job->lr, step, job->train.steps, &optim->rates)
            : 0;
    struct plait_update_now update = {
        .seed = rounding_seed(optim, step),
        .correct1 = 1 / (1 - pow((float)c->betas[0], step)),
        .correct2 = 1 / (1 - pow((float)c->betas[1], step)),
        .mix = mix,
    };

    for (int i = 0; i < PLAIT_STEP_CLASSES; i++) {
        update.lr = (float)lr * optim->classes[i].rate;
        now->update[i] = update;
    }
}

int plait_optim_step(struct plait_optim *optim, double lr, float grad_scale,
                     int64_t step)
{
    struct plait_mesh *mesh = optim->model->mesh;
    struct plait_step_values now = {.grad_scale = grad_scale};

    if (!isfinite(grad_scale))
        return 0; /* skipped: no weight has changed */
    if (plait_optim_settle(optim) < 0)
        return -1;
    set_now(optim, lr, step, &now);
    if (optim->model->statistics && add_statistics(optim) < 0)
        return -1;
    if (plait_optim_balances(optim) && plait_optim_balance(optim) < 0)
        return -1;
    if (optim->host)
        return step_on_host(optim, lr, grad_scale, step);
    if (mesh->ops->to_device(mesh->q, optim->now, &now, sizeof(now)) < 0 ||
        plait_directions_make(optim, grad_scale, step) < 0 ||
        (optim->rule->factor && set_factors(optim, lr, grad_scale, step) < 0) ||
        plait_optim_run_captured(optim, &optim->step, queue_step) < 0)
        return -1;
    plait_optim_announce(optim);
    return 0;
}

int plait_optim_step_clipped(struct plait_optim *optim, double lr, double clip,
                             double factor, int64_t step)
{
    struct plait_mesh *mesh = optim->model->mesh;
    struct plait_step_values now;

    set_now(optim, lr, step, &now);
    if (plait_optim_settle(optim) < 0 ||
        mesh->ops->to_device(mesh->q, optim->now->update, now.update,
                             sizeof(now.update)) < 0 ||
        plait_optim_queue_scale(optim, clip, factor) < 0 ||
        plait_optim_run_captured(optim, &optim->step, queue_step) < 0)
        return -1;
    plait_optim_announce(optim);
    return 0;
}
