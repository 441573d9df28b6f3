/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/tcp/socket_move.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/comm/shm/arith.h"

/* Up to so many bytes, of all ranks together, go directly from every rank to
 * every other. */
#define SMALL ((size_t)32 << 10)
/* With more than AT_ONCE ranks such data is passed on in rounds instead, in
 * gathers up to PASSED_ON bytes. */
#define AT_ONCE 8
#define PASSED_ON ((size_t)1 << 20)
/* Distinguishes collectives from messages, whose tags are smaller. */
#define COLLECTIVE (UINT64_C(1) << 63)

/* -- parts --------------------------------------------------------------- */

static struct plait_links_part *make_part(struct plait_socket_move *m, int i,
                                          char *at, size_t bytes)
{
    m->parts[i] = (struct plait_links_part){.group = m->group->id,
                                            .tag = m->tag,
                                            .at = at,
                                            .bytes = bytes,
                                            .pending = &m->pending,
                                            .entry = m->entry};
    m->pending++;
    return &m->parts[i];
}

/* Part i of the step goes to, or comes from, rank r of the group. */
static void put(struct plait_socket_move *m, int i, int r, const char *at,
                size_t bytes)
{
    plait_links_send(m->group->links, m->group->peer[r],
                     make_part(m, i, (char *)(uintptr_t)at, bytes));
}

static void get(struct plait_socket_move *m, int i, int r, char *at,
                size_t bytes)
{
    plait_links_receive(m->group->links, m->group->peer[r],
                        make_part(m, i, at, bytes));
}

/* -- rings --------------------------------------------------------------- */

static int wrap(const struct plait_socket_move *m, int r)
{
    int size = m->group->size;

    return (r % size + size) % size;
}

/* Chunk c: its number of elements, and where they begin in a whole buffer. */
static size_t chunk_of(const struct plait_socket_move *m, int c, size_t *begin)
{
    size_t n = m->t.n, size = (size_t)m->group->size, len = n;

    if (m->t.kind == PLAIT_ALL_REDUCE) {
        len = (n + size - 1) / size;
        *begin = (size_t)c * len < n ? (size_t)c * len : n;
        return n - *begin < len ? n - *begin : len;
    }
    *begin = (size_t)c * len;
    return len;
}

static char *half_of(const struct plait_socket_move *m, int step)
{
    size_t begin;

    return m->tmp + (size_t)(step & 1) * chunk_of(m, 0, &begin) * m->each;
}

/* Where this rank's reduced chunk goes. */
static char *result_of(const struct plait_socket_move *m)
{
    size_t begin;

    chunk_of(m, m->group->rank, &begin);
    return (char *)m->t.recv +
           (m->t.kind == PLAIT_ALL_REDUCE ? begin * m->each : 0);
}

/* In step s the sum so far of chunk rank - s - 2 has arrived, and this rank's
 * part is added. The last chunk to arrive is this rank's own. */
static void add_chunk(struct plait_socket_move *m, int s)
{
    size_t begin, n = chunk_of(m, wrap(m, m->group->rank - s - 2), &begin);
    char *sum = half_of(m, s);

    plait_arith_reduce(s == m->group->size - 2 ? result_of(m) : sum, sum,
                       (const char *)m->t.send + begin * m->each, n, m->t.type,
                       m->t.op);
}

static void reduce_step(struct plait_socket_move *m, int s)
{
    int rank = m->group->rank;
    size_t begin, n = chunk_of(m, wrap(m, rank - s - 1), &begin);
    const char *from =
        s == 0 ? (const char *)m->t.send + begin * m->each : half_of(m, s - 1);

    put(m, 0, wrap(m, rank + 1), from, n * m->each);
    n = chunk_of(m, wrap(m, rank - s - 2), &begin);
    get(m, 1, wrap(m, rank - 1), half_of(m, s), n * m->each);
}

static void gather_step(struct plait_socket_move *m, int s)
{
    int rank = m->group->rank;
    size_t begin, n = chunk_of(m, wrap(m, rank - s), &begin);
    char *all = m->t.recv;

    put(m, 0, wrap(m, rank + 1), all + begin * m->each, n * m->each);
    n = chunk_of(m, wrap(m, rank - s - 1), &begin);
    get(m, 1, wrap(m, rank - 1), all + begin * m->each, n * m->each);
}

static bool next_reduction(struct plait_socket_move *m)
{
    int steps = m->group->size - 1, s = m->step++;

    if (s > 0 && s <= steps)
        add_chunk(m, s - 1);
    if (s < steps)
        reduce_step(m, s);
    else if (m->t.kind == PLAIT_ALL_REDUCE && s < 2 * steps)
        gather_step(m, s - steps);
    else
        return false;
    return true;
}

/* In place, the part is already where it belongs. */
static void copy_own(struct plait_socket_move *m, const char *from, char *to)
{
    if (from != to)
        memcpy(to, from, m->t.n * m->each);
}

static bool next_gather(struct plait_socket_move *m)
{
    size_t bytes = m->t.n * m->each;
    int s = m->step++;

    if (s == 0)
        copy_own(m, m->t.send,
                 (char *)m->t.recv + (size_t)m->group->rank * bytes);
    if (s >= m->group->size - 1)
        return false;
    gather_step(m, s);
    return true;
}

/* -- from every rank to every other ---------------------------------------- */

/* Every rank gets what is at `send`; recv has the parts of all, in rank
 * order. */
static void exchange(struct plait_socket_move *m, const char *send, char *recv)
{
    size_t bytes = m->t.n * m->each;
    int me = m->group->rank, size = m->group->size, n = 0;

    for (int k = 1; k < size; k++) {
        int to = wrap(m, me + k), from = wrap(m, me - k);

        get(m, n++, from, recv + (size_t)from * bytes, bytes);
        put(m, n++, to, send, bytes);
    }
    copy_own(m, send, recv + (size_t)me * bytes);
}

/* Gather every rank's part in tmp, this rank's first, then those of the ranks
 * after it in order. Each round doubles what a rank has (Bruck et al.,
 * "Efficient algorithms for all-to-all communications", 1997), so that n ranks
 * need log2 n messages each. False when all is there. */
static bool next_doubling(struct plait_socket_move *m)
{
    size_t bytes = m->t.n * m->each;
    int me = m->group->rank, size = m->group->size, have = 1 << m->step, n;

    if (m->step++ == 0)
        memcpy(m->tmp, m->t.send, bytes);
    if (have >= size)
        return false;
    n = have < size - have ? have : size - have;
    get(m, 0, wrap(m, me + have), m->tmp + (size_t)have * bytes,
        (size_t)n * bytes);
    put(m, 1, wrap(m, me - have), m->tmp, (size_t)n * bytes);
    return true;
}

/* Rank r's part after the last next_doubling(). */
static const char *part_of(const struct plait_socket_move *m, int r)
{
    return m->tmp + (size_t)wrap(m, r - m->group->rank) * m->t.n * m->each;
}

static bool next_doubling_gather(struct plait_socket_move *m)
{
    size_t bytes = m->t.n * m->each;

    if (next_doubling(m))
        return true;
    for (int r = 0; r < m->group->size; r++)
        memcpy((char *)m->t.recv + (size_t)r * bytes, part_of(m, r), bytes);
    return false;
}

static bool next_doubling_sum(struct plait_socket_move *m)
{
    char *to = m->t.recv;

    if (next_doubling(m))
        return true;
    memcpy(to, part_of(m, 0), m->t.n * m->each);
    for (int r = 1; r < m->group->size; r++)
        plait_arith_reduce(to, to, part_of(m, r), m->t.n, m->t.type, m->t.op);
    return false;
}

static bool next_small_gather(struct plait_socket_move *m)
{
    if (m->step++ > 0)
        return false;
    exchange(m, m->t.send, m->t.recv);
    return true;
}

static bool next_small_sum(struct plait_socket_move *m)
{
    size_t bytes = m->t.n * m->each;
    char *to = m->t.recv;

    if (m->step++ == 0) {
        exchange(m, m->t.send, m->tmp);
        return true;
    }
    memcpy(to, m->tmp, bytes);
    for (int r = 1; r < m->group->size; r++)
        plait_arith_reduce(to, to, m->tmp + (size_t)r * bytes, m->t.n,
                           m->t.type, m->t.op);
    return false;
}

/* -- one to others --------------------------------------------------------- */

/* A binomial tree, with ranks counted from the root: rank v receives from the
 * rank that is v without its lowest bit, and sends to all that receive from
 * v. */
static bool next_broadcast(struct plait_socket_move *m)
{
    size_t bytes = m->t.n * m->each;
    int root = m->t.peer, size = m->group->size, n = 0;
    int v = wrap(m, m->group->rank - root), s = m->step++;

    if (s == 0 && v > 0) {
        get(m, 0, wrap(m, (v & (v - 1)) + root), m->t.recv, bytes);
        return true;
    }
    if (s > 1)
        return false;
    m->step = 2;
    for (int bit = 1; v + bit < size && !(v & bit); bit *= 2)
        put(m, n++, wrap(m, v + bit + root), m->t.send, bytes);
    return true;
}

static bool next_message(struct plait_socket_move *m)
{
    size_t bytes = m->t.n * m->each;

    if (m->step++ > 0)
        return false;
    if (m->t.kind == PLAIT_SEND)
        put(m, 0, m->t.peer, m->t.send, bytes);
    else
        get(m, 0, m->t.peer, m->t.recv, bytes);
    return true;
}

/* -- life ---------------------------------------------------------------- */

/* Whether the data is small and there are many ranks. */
static bool is_passed_on(const struct plait_socket_move *m)
{
    size_t ranks = (size_t)m->group->size, bytes = m->t.n * m->each * ranks;

    return ranks > AT_ONCE &&
           ((m->t.kind == PLAIT_ALL_GATHER && bytes <= PASSED_ON) ||
            (m->t.kind == PLAIT_ALL_REDUCE && bytes <= SMALL));
}

/* Choose the algorithm. *parts: how many parts a step has at most; returns the
 * bytes of memory that it needs beside the buffers. */
static size_t choose_way(struct plait_socket_move *m, size_t *parts)
{
    size_t ranks = (size_t)m->group->size, bytes = m->t.n * m->each, begin;
    bool small = bytes * ranks <= SMALL;

    *parts = 2;
    if (is_passed_on(m)) {
        m->next = m->t.kind == PLAIT_ALL_GATHER ? next_doubling_gather
                                                : next_doubling_sum;
        return ranks * bytes;
    }
    *parts = small ? 2 * ranks : 2;
    switch (m->t.kind) {
    case PLAIT_ALL_REDUCE:
        m->next = small ? next_small_sum : next_reduction;
        return small ? ranks * bytes : 2 * chunk_of(m, 0, &begin) * m->each;
    case PLAIT_REDUCE_SCATTER:
        m->next = next_reduction;
        return 2 * bytes;
    case PLAIT_ALL_GATHER:
        m->next = small ? next_small_gather : next_gather;
        return 0;
    case PLAIT_BROADCAST:
        *parts = 32;
        m->next = next_broadcast;
        return 0;
    default:
        m->next = next_message;
        return 0;
    }
}

void plait_socket_entry(struct plait_entry *entry,
                        const struct plait_socket_group *group,
                        const struct plait_call *call)
{
    *entry = (struct plait_entry){.group = group->id,
                                  .tag = COLLECTIVE | call->number,
                                  .call = *call,
                                  .name = group->name};
}

int plait_socket_begin(struct plait_socket_move *m,
                       const struct plait_socket_group *group,
                       const struct plait_transfer *t, size_t each,
                       struct plait_entry *entry)
{
    size_t parts, tmp;

    memset(m, 0, sizeof(*m));
    m->group = group;
    m->t = *t;
    m->each = each;
    m->entry = entry;
    m->tag = entry ? entry->tag : (uint64_t)t->tag;
    tmp = choose_way(m, &parts);
    m->parts = malloc(parts * sizeof(*m->parts));
    m->tmp = tmp > 0 ? malloc(tmp) : NULL;
    if (m->parts && (m->tmp || tmp == 0))
        return 0;
    plait_socket_end(m);
    return -1;
}

enum plait_moved plait_socket_advance(struct plait_socket_move *m)
{
    bool moved = plait_links_move(m->group->links);

    while (!plait_links_failure(m->group->links) && m->pending == 0) {
        if (!m->next(m))
            return PLAIT_DONE;
        moved = true;
    }
    if (!plait_links_failure(m->group->links))
        return moved ? PLAIT_MOVED : PLAIT_STUCK;
    m->failed = true;
    return PLAIT_DONE;
}

void plait_socket_end(struct plait_socket_move *m)
{
    free(m->parts);
    free(m->tmp);
    m->parts = NULL;
    m->tmp = NULL;
}
