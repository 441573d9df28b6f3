/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_FUZZ_COMM_H
#define PLAIT_TESTS_FUZZ_COMM_H

#include <string.h>

#include "runtime/comm/backend.h"

/* A communicator of FUZZ_RANKS ranks: rank 0 is this process, and what the
 * others say are the bytes of an input, one after the other, then zeros. */

enum { FUZZ_RANKS = 3 };

struct fuzz_comm {
    struct plait_comm base;
    const unsigned char *data;
    size_t size;
};

static inline void fuzz_hear(struct plait_comm *comm, void *to, size_t bytes)
{
    struct fuzz_comm *c = (struct fuzz_comm *)comm;
    size_t n = bytes < c->size ? bytes : c->size;

    memset(to, 0, bytes);
    if (n > 0)
        memcpy(to, c->data, n);
    c->data += n;
    c->size -= n;
}

static inline int fuzz_broadcast(struct plait_comm *comm, void *buf,
                                 size_t bytes, int root)
{
    if (root != 0)
        fuzz_hear(comm, buf, bytes);
    return 0;
}

static inline int fuzz_all_gather(struct plait_comm *comm, const void *send,
                                  void *recv, size_t bytes)
{
    if (bytes == 0)
        return 0;
    memcpy(recv, send, bytes);
    fuzz_hear(comm, (char *)recv + bytes, (FUZZ_RANKS - 1) * bytes);
    return 0;
}

static inline int fuzz_all_reduce(struct plait_comm *comm, double *values,
                                  size_t n, enum plait_reduce op)
{
    double other;

    (void)op;
    for (int r = 1; r < FUZZ_RANKS; r++)
        for (size_t i = 0; i < n; i++) {
            fuzz_hear(comm, &other, sizeof(other));
            if (other > values[i] || other != other)
                values[i] = other;
        }
    return 0;
}

static inline int fuzz_barrier(struct plait_comm *comm)
{
    (void)comm;
    return 0;
}

/* Only the transfers between two ranks. */
static inline int fuzz_run(struct plait_comm *comm,
                           const struct plait_transfer *t,
                           struct plait_queue *q, struct plait_request **req)
{
    (void)q;
    if (t->peer < 0 || t->peer >= FUZZ_RANKS || req)
        __builtin_trap();
    if (t->kind == PLAIT_RECV)
        fuzz_hear(comm, t->recv, t->n * plait_dtype_size(t->type));
    return 0;
}

static inline void fuzz_destroy(struct plait_comm *comm)
{
    (void)comm;
}

static const struct plait_comm_vtable fuzz_vtable = {
    .name = "fuzz",
    .destroy = fuzz_destroy,
    .run = fuzz_run,
    .barrier = fuzz_barrier,
    .host_broadcast = fuzz_broadcast,
    .host_all_gather = fuzz_all_gather,
    .host_all_reduce = fuzz_all_reduce,
};

static inline void fuzz_comm_init(struct fuzz_comm *c, const uint8_t *data,
                                  size_t size)
{
    memset(c, 0, sizeof(*c));
    plait_comm_init(&c->base, &fuzz_vtable, NULL, NULL,
                    &(struct plait_identity){"world", 0, FUZZ_RANKS});
    c->data = data;
    c->size = size;
}

#endif
