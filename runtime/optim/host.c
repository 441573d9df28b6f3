/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/host.h"

#include <errno.h>
#include <stdlib.h>

/* Elements of a piece. */
#define PIECE ((size_t)1 << 20)

/* One of the two pieces under way. Its queue brings gradients and takes
 * weights, in this order, so that it has waited for whatever used its memory
 * before once the gradients are there. */
struct piece {
    struct plait_queue *q;
    struct plait_event *done;
    float *grad;  /* [PIECE] pinned */
    char *weight; /* [PIECE] of the compute type, pinned */
    /* Gradients and weights are those here; n 0: nothing is under way. */
    struct plait_adamw_run run;
    void *to; /* where the weights go */
    struct plait_adamw rule;
};

struct plait_optim_host {
    struct plait_shards *shards;
    struct plait_event *now; /* of the compute queue */
    struct piece piece[2];
    int next;
};

static struct plait_parallel *parallel(const struct plait_optim_host *host)
{
    return host->shards->model->par;
}

static enum plait_dtype type_of(const struct plait_optim_host *host)
{
    return host->shards->model->type;
}

/* -- life ---------------------------------------------------------------- */

static int open_piece(struct plait_optim_host *host, struct piece *p)
{
    const struct plait_parallel *par = parallel(host);
    const struct plait_ops *ops = par->ops;

    p->q = ops->queue_create(par->dev, 0);
    p->done = ops->event_create(par->dev);
    p->grad = ops->pinned_alloc(par->dev, PIECE * sizeof(*p->grad));
    p->weight =
        ops->pinned_alloc(par->dev, PIECE * plait_dtype_size(type_of(host)));
    return p->q && p->done && p->grad && p->weight ? 0 : -1;
}

struct plait_optim_host *plait_optim_host_create(struct plait_shards *shards)
{
    struct plait_optim_host *host = calloc(1, sizeof(*host));
    struct plait_parallel *par = shards->model->par;

    if (!host)
        return NULL;
    host->shards = shards;
    host->now = par->ops->event_create(par->dev);
    if (host->now && open_piece(host, &host->piece[0]) == 0 &&
        open_piece(host, &host->piece[1]) == 0)
        return host;
    plait_optim_host_destroy(host);
    return NULL;
}

void plait_optim_host_destroy(struct plait_optim_host *host)
{
    struct plait_parallel *par;
    int saved = errno;
    int i;

    if (!host)
        return;
    par = parallel(host);
    for (i = 0; i < 2; i++) {
        struct piece *p = &host->piece[i];

        if (p->q)
            par->ops->queue_destroy(p->q);
        if (p->done)
            par->ops->event_destroy(p->done);
        par->ops->pinned_free(par->dev, p->grad);
        par->ops->pinned_free(par->dev, p->weight);
    }
    if (host->now)
        par->ops->event_destroy(host->now);
    free(host);
    errno = saved;
}

/* -- pieces -------------------------------------------------------------- */

/* Its gradients are here once its queue is done; its weights leave. */
static int finish(struct plait_optim_host *host, struct piece *p)
{
    const struct plait_shards *shards = host->shards;
    const struct plait_ops *ops = parallel(host)->ops;
    enum plait_dtype type = type_of(host);

    if (!p->run.n)
        return 0;
    if (ops->queue_sync(p->q) < 0 ||
        shards->state_ops->adamw(shards->state_q, &p->rule, type, &p->run, 1) <
            0 ||
        ops->copy_in(p->q, p->to, p->weight,
                     p->run.n * plait_dtype_size(type)) < 0)
        return -1;
    p->run.n = 0;
    return ops->event_record(p->done, p->q);
}

/* The gradients of this piece come while the one before is stepped. */
static int begin(struct plait_optim_host *host, const struct plait_adamw *rule,
                 const struct plait_adamw_run *run, size_t at, size_t n)
{
    struct plait_parallel *par = parallel(host);
    struct piece *p = &host->piece[host->next];

    host->next = !host->next;
    p->rule = *rule;
    p->run = (struct plait_adamw_run){.master = run->master + at,
                                      .m = run->m + at,
                                      .v = run->v + at,
                                      .grad = p->grad,
                                      .weight = p->weight,
                                      .n = n,
                                      .first = run->first + at,
                                      .weight_decay = run->weight_decay};
    p->to = (char *)run->weight + at * plait_dtype_size(type_of(host));
    if (par->ops->event_record(host->now, par->q) < 0 ||
        par->ops->event_wait(host->now, p->q) < 0 ||
        par->ops->copy_out(p->q, p->grad, run->grad + at,
                           n * sizeof(*p->grad)) < 0)
        return -1;
    return finish(host, &host->piece[host->next]);
}

int plait_optim_host_step(struct plait_optim_host *host,
                          const struct plait_adamw *p,
                          const struct plait_adamw_run *run)
{
    size_t at, n;

    for (at = 0; at < run->n; at += n) {
        n = run->n - at < PIECE ? run->n - at : PIECE;
        if (begin(host, p, run, at, n) < 0)
            return -1;
    }
    return 0;
}

int plait_optim_host_finish(struct plait_optim_host *host)
{
    struct plait_parallel *par = parallel(host);
    int i;

    for (i = 0; i < 2; i++)
        if (finish(host, &host->piece[i]) < 0 ||
            par->ops->event_wait(host->piece[i].done, par->q) < 0)
            return -1;
    return 0;
}

int plait_optim_host_follow(struct plait_optim_host *host,
                            const struct plait_shard *s)
{
    const struct plait_shards *shards = host->shards;
    struct plait_parallel *par = parallel(host);
    char *stage = host->piece[0].weight;
    size_t size = plait_dtype_size(type_of(host)), at, n;

    for (at = 0; at < s->part; at += n) {
        n = s->part - at < PIECE ? s->part - at : PIECE;
        if (shards->state_ops->cast(shards->state_q, type_of(host), stage,
                                    PLAIT_F32, s->master + at, n) < 0 ||
            par->ops->to_device(par->q, (char *)s->weight + at * size, stage,
                                n * size) < 0)
            return -1;
    }
    return 0;
}
