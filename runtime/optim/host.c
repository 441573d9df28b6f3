/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/host.h"

#include <errno.h>
#include <stdlib.h>

/* Most elements of a piece. */
#define PIECE ((size_t)1 << 20)

/* One of the two pieces in progress. Its queue first copies weights to the
 * device, then the next gradients to the host: once these have arrived, its
 * memory is no longer in use by the copy of the weights. */
struct piece {
    struct plait_queue *q;
    struct plait_event *done;
    float *grad;  /* [PIECE] pinned */
    char *weight; /* [PIECE] of the compute type, pinned */
    /* Its grad and weight point to the arrays above; n 0: not in progress. */
    struct plait_update_run run;
    void *to; /* where the weights go on the device */
    struct plait_update rule;
};

struct plait_optim_host {
    struct plait_shards *shards;
    struct plait_event *now; /* recorded on the compute queue */
    struct piece piece[2];
    int next;
};

static struct plait_mesh *mesh_of(const struct plait_optim_host *host)
{
    return host->shards->model->mesh;
}

static enum plait_dtype type_of(const struct plait_optim_host *host)
{
    return host->shards->model->type;
}

/* -- life ---------------------------------------------------------------- */

static int open_piece(struct plait_optim_host *host, struct piece *p)
{
    const struct plait_mesh *mesh = mesh_of(host);
    const struct plait_ops *ops = mesh->ops;

    p->q = ops->queue_create(mesh->dev, 0);
    p->done = ops->event_create(mesh->dev, 0);
    p->grad = ops->pinned_alloc(mesh->dev, PIECE * sizeof(*p->grad));
    p->weight =
        ops->pinned_alloc(mesh->dev, PIECE * plait_dtype_size(type_of(host)));
    return p->q && p->done && p->grad && p->weight ? 0 : -1;
}

struct plait_optim_host *plait_optim_host_create(struct plait_shards *shards)
{
    struct plait_optim_host *host = calloc(1, sizeof(*host));
    struct plait_mesh *mesh = shards->model->mesh;

    if (!host)
        return NULL;
    host->shards = shards;
    host->now = mesh->ops->event_create(mesh->dev, 0);
    if (host->now && open_piece(host, &host->piece[0]) == 0 &&
        open_piece(host, &host->piece[1]) == 0)
        return host;
    plait_optim_host_destroy(host);
    return NULL;
}

void plait_optim_host_destroy(struct plait_optim_host *host)
{
    struct plait_mesh *mesh;
    int saved = errno;

    if (!host)
        return;
    mesh = mesh_of(host);
    for (int i = 0; i < 2; i++) {
        struct piece *p = &host->piece[i];

        if (p->q)
            mesh->ops->queue_destroy(p->q);
        if (p->done)
            mesh->ops->event_destroy(p->done);
        mesh->ops->pinned_free(mesh->dev, p->grad);
        mesh->ops->pinned_free(mesh->dev, p->weight);
    }
    if (host->now)
        mesh->ops->event_destroy(host->now);
    free(host);
    errno = saved;
}

/* -- pieces -------------------------------------------------------------- */

/* Waits for the piece's gradients, updates it, and starts to copy its weights
 * to the device. */
static int finish_piece(struct plait_optim_host *host, struct piece *p)
{
    const struct plait_shards *shards = host->shards;
    const struct plait_ops *ops = mesh_of(host)->ops;
    enum plait_dtype type = type_of(host);

    if (!p->run.n)
        return 0;
    if (ops->queue_sync(p->q) < 0 ||
        shards->state_ops->update(shards->state_q, &p->rule, &p->run, 1) < 0 ||
        ops->copy_in(p->q, p->to, p->weight,
                     p->run.n * plait_dtype_size(type)) < 0)
        return -1;
    p->run.n = 0;
    return ops->event_record(p->done, p->q);
}

/* Starts to copy this piece's gradients, and meanwhile updates the piece
 * before. */
static int begin_piece(struct plait_optim_host *host,
                       const struct plait_update *rule,
                       const struct plait_update_run *run, size_t at, size_t n)
{
    struct plait_mesh *mesh = mesh_of(host);
    struct piece *p = &host->piece[host->next];
    size_t size = plait_dtype_size(rule->states);

    host->next = !host->next;
    p->rule = *rule;
    p->run = (struct plait_update_run){.master = run->master + at,
                                       .grad = p->grad,
                                       .weight = p->weight,
                                       .n = n,
                                       .origin = run->origin,
                                       .weight_decay = run->weight_decay};
    p->run.origin.first += at;
    for (int k = 0; k < PLAIT_OPTIM_STATES; k++)
        p->run.state[k] =
            run->state[k] ? (char *)run->state[k] + at * size : NULL;
    p->to = (char *)run->weight + at * plait_dtype_size(type_of(host));
    if (mesh->ops->event_record(host->now, mesh->q) < 0 ||
        mesh->ops->event_wait(host->now, p->q) < 0 ||
        mesh->ops->copy_out(p->q, p->grad, run->grad + at,
                            n * sizeof(*p->grad)) < 0)
        return -1;
    return finish_piece(host, &host->piece[host->next]);
}

int plait_optim_host_step(struct plait_optim_host *host,
                          const struct plait_update *p,
                          const struct plait_update_run *run)
{
    size_t n;

    for (size_t at = 0; at < run->n; at += n) {
        n = run->n - at < PIECE ? run->n - at : PIECE;
        if (begin_piece(host, p, run, at, n) < 0)
            return -1;
    }
    return 0;
}

int plait_optim_host_finish(struct plait_optim_host *host)
{
    struct plait_mesh *mesh = mesh_of(host);

    for (int i = 0; i < 2; i++)
        if (finish_piece(host, &host->piece[i]) < 0 ||
            mesh->ops->event_wait(host->piece[i].done, mesh->q) < 0)
            return -1;
    return 0;
}

int plait_optim_host_follow(struct plait_optim_host *host,
                            const struct plait_shard *s)
{
    const struct plait_shards *shards = host->shards;
    struct plait_mesh *mesh = mesh_of(host);
    char *stage = host->piece[0].weight;
    size_t size = plait_dtype_size(type_of(host)), n;

    for (size_t at = 0; at < s->part; at += n) {
        n = s->part - at < PIECE ? s->part - at : PIECE;
        if (shards->state_ops->cast(shards->state_q,
                                    &(struct plait_cast){.to = type_of(host),
                                                         .from = PLAIT_F32,
                                                         .dst = stage,
                                                         .src = s->master + at,
                                                         .n = n}) < 0 ||
            mesh->ops->to_device(mesh->q, (char *)s->weight + at * size, stage,
                                 n * size) < 0)
            return -1;
    }
    return 0;
}
