/* SPDX-License-Identifier: Apache-2.0 */
/* The biases by which routers balance the loads of their experts, and the loads
 * themselves where the balance loss is over batches. Each is a tensor of its
 * layer's region, so that ZeRO cuts it and checkpoints hold it as they do
 * weights, and in the place of its gradient are the counts of a step's tokens,
 * summed over the ranks as gradients are. But layers read it whole and in fp32,
 * in model->exact: after a change each rank gets the others' parts. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/optim/optim_private.h"
#include "topology/job/model_size.h"

/* A number of each expert of each layer here. Of `value` each rank keeps all,
 * which are the masters' values between refreshes: nothing else moves them. */
struct plait_optim_balance {
    size_t n;
    double *value, *count; /* [n] each */
    float *numbers;        /* [n] */
    float *counted;        /* [n] device: counts, 0 of what others own */
};

int plait_optim_balance_create(struct plait_optim *optim,
                               struct plait_error *err)
{
    struct plait_mesh *mesh = optim->model->mesh;
    size_t n = optim->model->nexact;
    struct plait_optim_balance *x;

    if (n == 0)
        return 0;
    optim->balance = x = calloc(1, sizeof(*x));
    if (!x)
        return plait_errorf(err, "out of memory");
    x->n = n;
    x->value = calloc(2 * n, sizeof(*x->value));
    x->numbers = calloc(n, sizeof(*x->numbers));
    x->counted = mesh->ops->alloc(mesh->dev, n * sizeof(*x->counted));
    if (!x->value || !x->numbers || !x->counted ||
        mesh->ops->fill_zero(mesh->q, x->counted, n * sizeof(*x->counted)) < 0)
        return plait_errorf(err, "out of memory");
    x->count = x->value + n;
    return 0;
}

void plait_optim_balance_destroy(struct plait_optim *optim)
{
    struct plait_mesh *mesh = optim->model->mesh;
    struct plait_optim_balance *x = optim->balance;

    if (!x)
        return;
    mesh->ops->free(mesh->dev, x->counted);
    free(x->value);
    free(x->numbers);
    free(x);
}

/* The values that this rank owns; 0 in the places of others. */
static int read_values(struct plait_optim *optim, struct plait_optim_balance *x)
{
    memset(x->numbers, 0, x->n * sizeof(*x->numbers));
    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];

        if (s->tensor->balance &&
            plait_optim_read(optim, x->numbers + s->tensor->exact + s->first,
                             s->master, s->count * sizeof(float)) < 0)
            return -1;
    }
    for (size_t i = 0; i < x->n; i++)
        x->value[i] = x->numbers[i];
    return 0;
}

/* The counts of the same, in one copy to the host, which waits. */
static int read_counts(struct plait_optim *optim, struct plait_optim_balance *x)
{
    struct plait_mesh *mesh = optim->model->mesh;

    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];
        const struct plait_shard *shard =
            &optim->shards->shard[s->tensor->region];

        if (s->tensor->balance &&
            mesh->ops->copy(mesh->q, x->counted + s->tensor->exact + s->first,
                            shard->grad + (s->master - shard->master),
                            s->count * sizeof(float)) < 0)
            return -1;
    }
    if (mesh->ops->to_host(mesh->q, x->numbers, x->counted,
                           x->n * sizeof(float)) < 0)
        return -1;
    for (size_t i = 0; i < x->n; i++)
        x->count[i] = x->numbers[i];
    return 0;
}

/* Collective over the ranks that share the layers' weights, if each has a part
 * of them. Sums of doubles are exact: in each place only one rank has another
 * number than 0. One that could not read its own tells all by a NaN. */
static int gather(struct plait_optim *optim, double *numbers, size_t n, int rc)
{
    const struct plait_model *model = optim->model;
    const struct plait_shard *shard = NULL;

    for (int i = 0; i < model->ntensors && !shard; i++)
        if (model->tensors[i].balance)
            shard = &optim->shards->shard[model->tensors[i].region];
    if (shard->parts == 1)
        return rc;
    if (rc < 0)
        numbers[0] = NAN;
    if (plait_comm_host_all_reduce(shard->comm, numbers, n, PLAIT_SUM) < 0)
        return -1;
    return isnan(numbers[0]) ? -1 : 0;
}

/* Experts with more than the mean of a step's tokens become less likely, those
 * with fewer more so (arXiv 2408.15664, algorithm 1). */
static void move(const struct plait_tensor *t, double rate,
                 struct plait_optim_balance *x)
{
    double sum = 0, mean;

    for (size_t e = t->exact; e < t->exact + t->count; e++)
        sum += x->count[e];
    mean = sum / (double)t->count;
    for (size_t e = t->exact; e < t->exact + t->count; e++)
        x->value[e] += x->count[e] < mean   ? rate
                       : x->count[e] > mean ? -rate
                                            : 0;
}

/* How often the step chose each expert, relative to the mean. */
static void set_loads(const struct plait_tensor *t,
                      struct plait_optim_balance *x)
{
    double sum = 0;

    for (size_t e = t->exact; e < t->exact + t->count; e++)
        sum += x->count[e];
    for (size_t e = t->exact; e < t->exact + t->count; e++)
        x->value[e] = x->count[e] * (double)t->count / sum;
}

/* Queues writing what this rank owns of the new values. */
static int write_masters(struct plait_optim *optim,
                         const struct plait_optim_balance *x)
{
    struct plait_mesh *mesh = optim->model->mesh;
    bool near = optim->shards->state_q == mesh->q; /* they are not offloaded */

    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];
        size_t at = s->tensor->exact + s->first;
        size_t bytes = s->count * sizeof(float);

        if (s->tensor->balance &&
            (near ? mesh->ops->copy(mesh->q, s->master,
                                    optim->model->exact + at, bytes)
                  : plait_optim_write(optim, s->master, x->numbers + at,
                                      bytes)) < 0)
            return -1;
    }
    return 0;
}

/* Tells the layers, and keeps what a checkpoint would: numbers in fp32. */
static int write_exact(struct plait_optim *optim, struct plait_optim_balance *x)
{
    struct plait_mesh *mesh = optim->model->mesh;

    for (size_t i = 0; i < x->n; i++)
        x->value[i] = x->numbers[i] = (float)x->value[i];
    return mesh->ops->to_device(mesh->q, optim->model->exact, x->numbers,
                                x->n * sizeof(float));
}

bool plait_optim_balances(const struct plait_optim *optim)
{
    const struct plait_model_config *m = &optim->model->config->model;

    return m->experts_balance_rate > 0 || plait_model_counts_loads(m);
}

int plait_optim_tell_balance(struct plait_optim *optim)
{
    struct plait_optim_balance *x = optim->balance;

    if (!x) /* so is it for all ranks that share the layers */
        return 0;
    if (gather(optim, x->value, x->n, read_values(optim, x)) < 0)
        return -1;
    return write_exact(optim, x);
}

int plait_optim_balance(struct plait_optim *optim)
{
    const struct plait_model *model = optim->model;
    struct plait_optim_balance *x = optim->balance;

    if (!x)
        return 0;
    if (gather(optim, x->count, x->n, read_counts(optim, x)) < 0)
        return -1;
    for (int i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];

        if (t->load)
            set_loads(t, x);
        else if (t->balance)
            move(t, model->config->model.experts_balance_rate, x);
    }
    return write_exact(optim, x) < 0 ? -1 : write_masters(optim, x);
}
