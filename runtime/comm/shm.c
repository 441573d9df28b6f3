/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/shm.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Elements that go round at once: two chunks of every rank stay in cache. */
#define CHUNK ((size_t)64 << 10)
#define LINE 64
/* Looks at a flag before the core is offered to somebody else. */
#define SPINS 2000

/* What each rank has in the segment: how far it is, alone on its cache line,
 * and two chunks. */
struct seat {
    _Alignas(LINE) _Atomic uint64_t at;
    _Alignas(LINE) float chunk[2][CHUNK];
};

struct plait_shm {
    MPI_Comm comm; /* the ranks, for messages that must move meanwhile */
    MPI_Win window;
    int rank, size;
    struct seat **seat; /* [size] */
    uint64_t at;        /* barriers passed */
};

/* MPI aligns less than a cache line. Segments are mapped on page borders, so
 * every process comes to the same place. */
static struct seat *align(void *base)
{
    uintptr_t at = (uintptr_t)base;

    return (struct seat *)((at + LINE - 1) / LINE * LINE);
}

int plait_shm_create(MPI_Comm comm, struct plait_shm **shm)
{
    struct plait_shm *s = NULL;
    MPI_Comm local;
    void *base;
    MPI_Aint bytes;
    int i, size, near, unit, ready, all, rc;

    *shm = NULL;
    MPI_Comm_size(comm, &size);
    rc = MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                             &local);
    if (rc != MPI_SUCCESS)
        return rc;
    MPI_Comm_size(local, &near);
    s = calloc(1, sizeof(*s));
    ready = s && (s->seat = calloc(size, sizeof(*s->seat))) && near == size;
    rc = MPI_Allreduce(MPI_IN_PLACE, &ready, 1, MPI_INT, MPI_MIN, comm);
    if (rc == MPI_SUCCESS && ready) {
        /* Not every configuration of an MPI has shared windows (Open MPI with
         * only its ucx one-sided component): then there is no segment. */
        ready = MPI_Win_allocate_shared(sizeof(**s->seat) + LINE, 1,
                                        MPI_INFO_NULL, local, &base,
                                        &s->window) == MPI_SUCCESS;
        all = ready;
        rc = MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm);
        if (ready && !all)
            MPI_Win_free(&s->window);
        ready = all;
    }
    MPI_Comm_free(&local);
    if (rc != MPI_SUCCESS || !ready) {
        if (s)
            free(s->seat);
        free(s);
        return rc;
    }
    s->comm = comm;
    s->size = size;
    MPI_Comm_rank(comm, &s->rank);
    for (i = 0; i < size; i++) {
        MPI_Win_shared_query(s->window, i, &bytes, &unit, &base);
        s->seat[i] = align(base);
    }
    atomic_store(&s->seat[s->rank]->at, 0);
    *shm = s;
    return MPI_Barrier(comm);
}

void plait_shm_destroy(struct plait_shm *shm)
{
    if (!shm)
        return;
    MPI_Win_free(&shm->window);
    free(shm->seat);
    free(shm);
}

/* Wait for all ranks. Messages of ours may be on their way to a rank that is
 * not there yet because it waits for them: MPI gets its turns. */
static void meet(struct plait_shm *s)
{
    int i, spins = 0, flag;

    atomic_store_explicit(&s->seat[s->rank]->at, ++s->at,
                          memory_order_release);
    for (i = 0; i < s->size; i++)
        while (atomic_load_explicit(&s->seat[i]->at, memory_order_acquire) <
               s->at) {
            if (++spins < SPINS)
                continue;
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, s->comm, &flag,
                       MPI_STATUS_IGNORE);
            sched_yield();
        }
}

/* to[i] = to[i] and from[i] reduced */
static void reduce(float *restrict to, const float *restrict from, size_t n,
                   enum plait_reduce op)
{
    size_t i;

    if (op == PLAIT_SUM)
        for (i = 0; i < n; i++)
            to[i] += from[i];
    else
        for (i = 0; i < n; i++)
            to[i] = from[i] > to[i] ? from[i] : to[i];
}

/* Rank r's part of a chunk of n elements: [*begin, returned end). */
static size_t part(const struct plait_shm *s, int r, size_t n, size_t *begin)
{
    size_t each = (n + s->size - 1) / s->size;

    each = (each + 15) / 16 * 16;
    *begin = each * r < n ? each * r : n;
    return each * (r + 1) < n ? each * (r + 1) : n;
}

static void all_reduce_chunk(struct plait_shm *s, const float *send,
                             float *recv, size_t n, int slot,
                             enum plait_reduce op)
{
    float *first = s->seat[0]->chunk[slot];
    size_t begin, end;
    int i;

    memcpy(s->seat[s->rank]->chunk[slot], send, n * sizeof(*send));
    meet(s);
    /* Into the first rank's chunk: nobody else touches my part of it. */
    end = part(s, s->rank, n, &begin);
    for (i = 1; i < s->size; i++)
        reduce(first + begin, s->seat[i]->chunk[slot] + begin, end - begin,
               op);
    meet(s);
    memcpy(recv, first, n * sizeof(*recv));
}

void plait_shm_all_reduce(struct plait_shm *s, const float *send, float *recv,
                          size_t n, enum plait_reduce op)
{
    size_t at, now;
    int slot = 0;

    /* A chunk is used again two rounds later, when everybody has met once
     * more and so has read it; the last two of a call likewise, because the
     * next call goes on with the other slot. */
    for (at = 0; at < n; at += now, slot = !slot) {
        now = n - at < CHUNK ? n - at : CHUNK;
        all_reduce_chunk(s, send + at, recv + at, now, slot, op);
    }
    if (slot == 1)
        meet(s); /* an odd number of chunks: slot 0 comes next again */
}
