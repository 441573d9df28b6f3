/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "runtime/model/internal.h"

/* Activations that wait for backward in host memory. The device has two blocks:
 * one for the current layer and one for a copy in progress. A layer's forward
 * fills one block while the previous layer is copied out of the other, and its
 * backward reads one while the previous layer is copied into the other. The
 * copies have their own queue, so that they overlap with the products. */

int plait_offload_open(struct plait_model *model, size_t blocks)
{
    struct plait_offload_state *o = &model->state->offload;
    const struct plait_ops *ops = model->mesh->ops;
    struct plait_device *dev = model->mesh->dev;

    if (!o->block)
        return 0;
    o->host = ops->pinned_alloc(dev, blocks * o->block);
    o->q = ops->queue_create(dev, 0);
    o->now = ops->event_create(dev, 0);
    for (int i = 0; i < 2; i++)
        o->moved[i] = ops->event_create(dev, 0);
    return o->host && o->q && o->now && o->moved[0] && o->moved[1] ? 0 : -1;
}

void plait_offload_close(struct plait_model *model)
{
    struct plait_offload_state *o = &model->state->offload;
    const struct plait_ops *ops = model->mesh->ops;
    int saved_errno = errno;

    if (o->q)
        ops->queue_destroy(o->q);
    for (int i = 0; i < 2; i++)
        if (o->moved[i])
            ops->event_destroy(o->moved[i]);
    if (o->now)
        ops->event_destroy(o->now);
    if (o->host)
        ops->pinned_free(model->mesh->dev, o->host);
    memset(o, 0, sizeof(*o));
    errno = saved_errno;
}

/* The host copy of a layer's activations; the address also identifies the
 * layer. */
static char *host_copy(const struct plait_work *w, int nth)
{
    return w->slot->offloaded + nth * w->model->state->offload.block;
}

/* Makes slot->layer[nth] point into block b. The experts' counts are in the
 * host's memory and stay the layer's own. */
static void point_to_buffer(const struct plait_work *w, int nth, int b)
{
    struct plait_offload_state *o = &w->model->state->offload;
    struct plait_activations *a = &w->slot->layer[nth];
    int *rows = a->routed.rows, *here = a->routed.here;

    *a = o->at[b][a->dense];
    a->routed.rows = rows;
    a->routed.here = here;
    o->current = b;
}

/* Makes the copy queue wait for all compute that is queued now. */
static int wait_for_compute(const struct plait_work *w)
{
    const struct plait_offload_state *o = &w->model->state->offload;

    if (w->ops->event_record(o->now, w->q) < 0)
        return -1;
    return w->ops->event_wait(o->now, o->q);
}

int plait_offload_take(const struct plait_work *w, int nth, bool train)
{
    struct plait_offload_state *o = &w->model->state->offload;
    int b = !o->current;

    if (!o->block)
        return 0;
    /* The other block holds the previous layer, which is still read. */
    o->of[b] = train ? host_copy(w, nth) : NULL;
    if (o->of[!b] == host_copy(w, nth))
        o->of[!b] = NULL;
    point_to_buffer(w, nth, b);
    return w->ops->event_wait(o->moved[b], w->q);
}

int plait_offload_put(const struct plait_work *w, int nth)
{
    struct plait_offload_state *o = &w->model->state->offload;
    int b = o->current;

    if (!o->block || !o->of[b])
        return 0;
    if (wait_for_compute(w) < 0 ||
        w->ops->copy_out(o->q, host_copy(w, nth), o->base[b], o->block) < 0)
        return -1;
    return w->ops->event_record(o->moved[b], o->q);
}

/* Fetches a layer into the block not in use, unless it is there already. */
static int fetch_block(const struct plait_work *w, int nth)
{
    struct plait_offload_state *o = &w->model->state->offload;
    int b = !o->current;

    if (o->of[b] == host_copy(w, nth))
        return 0;
    o->of[b] = host_copy(w, nth);
    if (wait_for_compute(w) < 0 ||
        w->ops->copy_in(o->q, o->base[b], o->of[b], o->block) < 0)
        return -1;
    return w->ops->event_record(o->moved[b], o->q);
}

int plait_offload_get(const struct plait_work *w, int nth)
{
    struct plait_offload_state *o = &w->model->state->offload;
    int b = o->current;

    if (!o->block)
        return 0;
    if (o->of[b] != host_copy(w, nth)) {
        if (fetch_block(w, nth) < 0)
            return -1;
        b = !b;
    }
    point_to_buffer(w, nth, b);
    if (w->ops->event_wait(o->moved[b], w->q) < 0)
        return -1;
    return nth > 0 ? fetch_block(w, nth - 1) : 0;
}
