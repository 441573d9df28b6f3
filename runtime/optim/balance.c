/* SPDX-License-Identifier: Apache-2.0 */
/* The biases by which routers balance the loads of their experts. Each is a
 * tensor of its layer's region, so that ZeRO cuts it and checkpoints hold it as
 * they do weights, and in the place of its gradient are the counts of a step's
 * tokens, summed over the ranks as gradients are. But layers read it whole and
 * in fp32, in model->exact: after a change each rank gets the others' parts. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/optim/optim_private.h"

/* A number of each expert of each layer here. Sums of doubles are exact: in
 * each place only one rank has another number than 0. */
struct numbers {
    size_t n;
    double *bias, *count; /* [n] each */
    float *moved;         /* [n] */
};

static int make_numbers(struct numbers *x, size_t n)
{
    x->n = n;
    x->bias = calloc(2 * n, sizeof(*x->bias));
    x->moved = calloc(n, sizeof(*x->moved));
    if (!x->bias || !x->moved)
        return -1;
    x->count = x->bias + n;
    return 0;
}

static void free_numbers(struct numbers *x)
{
    free(x->bias);
    free(x->moved);
}

/* What this rank owns of a bias and, to move it, of the counts. */
static int read_slice(struct plait_optim *optim,
                      const struct plait_optim_slice *s, bool moves,
                      struct numbers *x)
{
    struct plait_mesh *mesh = optim->model->mesh;
    const struct plait_shard *shard = &optim->shards->shard[s->tensor->region];
    size_t at = s->tensor->exact + s->first, bytes = s->count * sizeof(float);

    if (plait_optim_read(optim, x->moved + at, s->master, bytes) < 0)
        return -1;
    for (size_t i = at; i < at + s->count; i++)
        x->bias[i] = x->moved[i];
    if (!moves)
        return 0;
    if (mesh->ops->to_host(mesh->q, x->moved + at,
                           shard->grad + (s->master - shard->master),
                           bytes) < 0)
        return -1;
    for (size_t i = at; i < at + s->count; i++)
        x->count[i] = x->moved[i];
    return 0;
}

/* Collective over the ranks that share the layers' weights, if each has a part
 * of them. */
static int gather(struct plait_optim *optim, bool moves, struct numbers *x)
{
    const struct plait_model *model = optim->model;
    const struct plait_shard *shard = NULL;

    for (int i = 0; i < optim->nslices; i++)
        if (optim->slices[i].tensor->balance &&
            read_slice(optim, &optim->slices[i], moves, x) < 0)
            return -1;
    for (int i = 0; i < model->ntensors && !shard; i++)
        if (model->tensors[i].balance)
            shard = &optim->shards->shard[model->tensors[i].region];
    if (shard->parts == 1)
        return 0;
    return plait_comm_host_all_reduce(shard->comm, x->bias, 2 * x->n,
                                      PLAIT_SUM);
}

/* Experts with more than the mean of a step's tokens become less likely, those
 * with fewer more so (arXiv 2408.15664, algorithm 1). */
static void move(const struct plait_tensor *t, double rate, struct numbers *x)
{
    double sum = 0, mean;

    for (size_t e = t->exact; e < t->exact + t->count; e++)
        sum += x->count[e];
    mean = sum / (double)t->count;
    for (size_t e = t->exact; e < t->exact + t->count; e++)
        x->bias[e] += x->count[e] < mean   ? rate
                      : x->count[e] > mean ? -rate
                                           : 0;
}

static int write_all(struct plait_optim *optim, struct numbers *x)
{
    struct plait_mesh *mesh = optim->model->mesh;

    for (size_t i = 0; i < x->n; i++)
        x->moved[i] = (float)x->bias[i];
    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];

        if (s->tensor->balance &&
            plait_optim_write(optim, s->master,
                              x->moved + s->tensor->exact + s->first,
                              s->count * sizeof(float)) < 0)
            return -1;
    }
    return mesh->ops->to_device(mesh->q, optim->model->exact, x->moved,
                                x->n * sizeof(float));
}

bool plait_optim_balances(const struct plait_optim *optim)
{
    return optim->model->config->model.experts_balance_rate > 0;
}

int plait_optim_balance(struct plait_optim *optim, bool moves)
{
    const struct plait_model *model = optim->model;
    double rate = model->config->model.experts_balance_rate;
    struct numbers x = {0};
    int rc;

    if (!model->nexact) /* so is it for all ranks that share the layers */
        return 0;
    rc = make_numbers(&x, model->nexact);
    if (rc == 0)
        rc = gather(optim, moves, &x);
    for (int i = 0; i < model->ntensors && moves && rc == 0; i++)
        if (model->tensors[i].balance)
            move(&model->tensors[i], rate, &x);
    if (rc == 0)
        rc = write_all(optim, &x);
    free_numbers(&x);
    return rc;
}
