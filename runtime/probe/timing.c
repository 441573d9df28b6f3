/* SPDX-License-Identifier: Apache-2.0 */
/* Times messages and all-reduces of doubling sizes between ranks: the medians
 * of several rounds. */
#include "runtime/probe/timing.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/comm/tags.h"
#include "runtime/probe/fit.h"
#include "topology/base/clock.h"

enum { SMALL = 65536, IN_A_ROW = 10 };

int plait_timing_open(struct plait_timing *m, struct plait_world *world,
                      size_t most, int repeat, struct plait_error *err)
{
    memset(m, 0, sizeof(*m));
    m->world = world;
    m->repeat = repeat;
    for (size_t bytes = 256; bytes <= most && m->nsizes < PLAIT_TIMING_SIZES;
         bytes *= 4)
        m->size[m->nsizes++] = bytes;
    m->queue = world->ops->queue_create(world->dev, 0);
    m->send = plait_comm_alloc(world->comm, world->ops, world->dev, most);
    m->recv = plait_comm_alloc(world->comm, world->ops, world->dev, most);
    m->times = malloc((size_t)repeat * sizeof(*m->times));
    if (!m->queue || !m->send || !m->recv || !m->times)
        return plait_errorf(err, "no memory for messages of %zu bytes", most);
    return 0;
}

void plait_timing_close(struct plait_timing *m)
{
    const struct plait_ops *ops = m->world->ops;

    plait_comm_free(m->world->comm, ops, m->world->dev, m->send);
    plait_comm_free(m->world->comm, ops, m->world->dev, m->recv);
    if (m->queue)
        ops->queue_destroy(m->queue);
    free(m->times);
}

/* This rank's part in a transfer. */
struct transfer {
    struct plait_comm *comm; /* NULL: takes no part */
    int peer;                /* < 0: an all-reduce */
};

static int transfer(struct plait_timing *m, const struct transfer *t, size_t n)
{
    const struct plait_buffers b = {m->send, m->recv, n, PLAIT_F32};
    struct plait_request *in, *out;

    if (t->peer < 0)
        return plait_comm_all_reduce(t->comm, &b, PLAIT_SUM, m->queue, NULL);
    if (plait_comm_recv(t->comm, &b, t->peer, PLAIT_TAG_PROBE, m->queue, &in) <
            0 ||
        plait_comm_send(t->comm, &b, t->peer, PLAIT_TAG_PROBE, m->queue, &out) <
            0)
        return -1;
    return plait_comm_wait(&in, m->queue) < 0 ||
                   plait_comm_wait(&out, m->queue) < 0
               ? -1
               : 0;
}

/* The mean time of several transfers in a row. One transfer before them is not
 * timed: ranks leave the barrier at different times, and that transfer waits
 * for the last. */
static int time_once(struct plait_timing *m, const struct transfer *t,
                     size_t bytes, double *seconds)
{
    int row = bytes > SMALL ? 1 : IN_A_ROW;
    double start = 0;

    *seconds = 0;
    if (plait_comm_barrier(m->world->comm) < 0)
        return -1;
    for (int i = 0; t->comm && i <= row; i++) {
        if (transfer(m, t, bytes / sizeof(float)) < 0)
            return -1;
        if (i == 0) {
            if (m->world->ops->queue_sync(m->queue) < 0)
                return -1;
            start = plait_clock_now();
        }
    }
    if (!t->comm)
        return 0;
    if (m->world->ops->queue_sync(m->queue) < 0)
        return -1;
    *seconds = (plait_clock_now() - start) / row;
    return 0;
}

static int time_sizes(struct plait_timing *m, const struct transfer *t,
                      double *seconds, struct plait_error *err)
{
    struct plait_comm *world = m->world->comm;

    for (int i = 0; i < m->nsizes; i++) {
        for (int k = 0; k < m->repeat; k++)
            if (time_once(m, t, m->size[i], &m->times[k]) < 0)
                goto error;
        if (plait_comm_host_all_reduce(world, m->times, (size_t)m->repeat,
                                       PLAIT_MAX) < 0)
            goto error;
        seconds[i] = plait_median(m->times, m->repeat);
    }
    return 0;
error:
    return plait_errorf(err, "%s", plait_comm_error(t->comm ? t->comm : world));
}

int plait_timing_exchange(struct plait_timing *m, int peer, double *seconds,
                          struct plait_error *err)
{
    struct transfer t = {peer < 0 ? NULL : m->world->comm, peer};

    return time_sizes(m, &t, seconds, err);
}

int plait_timing_reduce(struct plait_timing *m, struct plait_comm *comm,
                        double *seconds, struct plait_error *err)
{
    struct transfer t = {comm, -1};

    return time_sizes(m, &t, seconds, err);
}
