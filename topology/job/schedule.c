/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/schedule.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const char *const plait_schedule_names[PLAIT_NSCHEDULES] = {
    "naive", "gpipe", "1f1b", "interleaved", "zb-h1"};

/* Everything about a run of a pipeline: what each rank computes, in order,
 * and when it would start and end if a forward, an input gradient and a
 * weight gradient each took one unit and messages none. */
struct pipeline {
    enum plait_schedule_kind kind;
    int p, v, m;
    int n;                        /* computations per rank */
    struct plait_action *compute; /* [p][n] */
    int64_t *start, *end;         /* [p][n] */
};

/* The list of one rank while it is written. */
struct writer {
    const struct pipeline *pipe;
    struct plait_schedule *out;
    int cursor[2]; /* into the lists of the ranks before and after */
    bool *posted;  /* [2][v][m] receives: forward, backward */
};

void plait_schedule_destroy(struct plait_schedule *schedule)
{
    int saved = errno;

    if (!schedule)
        return;
    free(schedule->actions);
    free(schedule);
    errno = saved;
}

static void put(struct plait_action **to, enum plait_action_kind kind,
                int chunk, int microbatch)
{
    *(*to)++ = (struct plait_action){kind, chunk, microbatch};
}

static void list_naive(int m, struct plait_action *to)
{
    for (int i = 0; i < m; i++) {
        put(&to, PLAIT_FORWARD, 0, i);
        put(&to, PLAIT_BACKWARD, 0, i);
    }
}

static void list_gpipe(int m, struct plait_action *to)
{
    for (int i = 0; i < m; i++)
        put(&to, PLAIT_FORWARD, 0, i);
    for (int i = 0; i < m; i++)
        put(&to, PLAIT_BACKWARD, 0, i);
}

/* Micro-batch `k` of the order in which interleaving walks chunks: p of them
 * through a chunk, then the next chunk; backward through the chunks from the
 * last (Narayanan et al., SC21). With one chunk it is just k. */
static void put_kth(const struct pipeline *pipe, struct plait_action **to,
                    enum plait_action_kind kind, int k)
{
    int p = pipe->p, v = pipe->v;
    int chunk = k % (p * v) / p;

    if (v == 1) {
        put(to, kind, 0, k);
        return;
    }
    put(to, kind, kind == PLAIT_FORWARD ? chunk : v - 1 - chunk,
        k / (p * v) * p + k % p);
}

static void list_1f1b(const struct pipeline *pipe, int rank,
                      struct plait_action *to)
{
    int after = pipe->p - 1 - rank, total = pipe->m * pipe->v;
    int warmup = pipe->v == 1 ? after : 2 * after + (pipe->v - 1) * pipe->p;

    if (warmup > total)
        warmup = total;
    for (int k = 0; k < warmup; k++)
        put_kth(pipe, &to, PLAIT_FORWARD, k);
    for (int k = 0; k < total; k++) {
        if (warmup + k < total)
            put_kth(pipe, &to, PLAIT_FORWARD, warmup + k);
        put_kth(pipe, &to, PLAIT_BACKWARD, k);
    }
}

/* Rank r does its weight gradients r micro-batches late, so that they fill
 * the wait at the end; every rank then holds as much as rank 0 (Qi et al.,
 * "Zero Bubble Pipeline Parallelism", ZB-H1). */
static void list_zb_h1(int p, int m, int rank, struct plait_action *to)
{
    int warmup = p - 1 - rank < m ? p - 1 - rank : m;

    for (int i = 0; i < warmup; i++)
        put(&to, PLAIT_FORWARD, 0, i);
    for (int i = 0; i < m; i++) {
        if (warmup + i < m)
            put(&to, PLAIT_FORWARD, 0, warmup + i);
        put(&to, PLAIT_BACKWARD_INPUT, 0, i);
        if (i >= rank)
            put(&to, PLAIT_BACKWARD_WEIGHT, 0, i - rank);
    }
    for (int i = m > rank ? m - rank : 0; i < m; i++)
        put(&to, PLAIT_BACKWARD_WEIGHT, 0, i);
}

static void list_compute(const struct pipeline *pipe, int rank)
{
    struct plait_action *to = pipe->compute + (size_t)rank * pipe->n;

    switch (pipe->kind) {
    case PLAIT_SCHEDULE_NAIVE:
        list_naive(pipe->m, to);
        break;
    case PLAIT_SCHEDULE_GPIPE:
        list_gpipe(pipe->m, to);
        break;
    case PLAIT_SCHEDULE_ZB_H1:
        list_zb_h1(pipe->p, pipe->m, rank, to);
        break;
    default:
        list_1f1b(pipe, rank, to);
    }
}

/* The message that a computation sends: to which rank, and the receive that
 * takes it. False if its result stays on the rank. */
static bool message(int p, int v, int rank, const struct plait_action *a,
                    int *peer, struct plait_action *recv)
{
    int stage = a->chunk * p + rank, to;

    if (a->kind == PLAIT_FORWARD)
        to = stage + 1;
    else if (a->kind != PLAIT_BACKWARD_WEIGHT)
        to = stage - 1;
    else
        return false;
    if (to < 0 || to >= p * v)
        return false;
    *peer = to % p;
    recv->kind =
        a->kind == PLAIT_FORWARD ? PLAIT_RECV_FORWARD : PLAIT_RECV_BACKWARD;
    recv->chunk = to / p;
    recv->microbatch = a->microbatch;
    return true;
}

/* The receive that a computation waits for, if any. */
static bool needs(int p, int v, int rank, const struct plait_action *a,
                  struct plait_action *recv)
{
    int stage = a->chunk * p + rank;

    *recv = *a;
    if (a->kind == PLAIT_FORWARD) {
        recv->kind = PLAIT_RECV_FORWARD;
        return stage > 0;
    }
    recv->kind = PLAIT_RECV_BACKWARD;
    return a->kind != PLAIT_BACKWARD_WEIGHT && stage < p * v - 1;
}

/* Run the rank's computations from its next one as far as their inputs are
 * available; returns how many. `done` [2][p * v][m] holds when each stage's
 * forward and backward ended, -1 before. */
static int advance_rank(struct pipeline *pipe, int rank, int *next,
                        int64_t *done)
{
    int p = pipe->p, v = pipe->v, m = pipe->m, first = *next;
    const struct plait_action *a = pipe->compute + (size_t)rank * pipe->n;
    int64_t *start = pipe->start + (size_t)rank * pipe->n;
    int64_t *end = pipe->end + (size_t)rank * pipe->n, *slot, ready;
    struct plait_action recv;
    bool backward;

    for (; *next < pipe->n; ++*next) {
        backward = a[*next].kind != PLAIT_FORWARD;
        slot = done +
               ((size_t)backward * p * v + a[*next].chunk * p + rank) * m +
               a[*next].microbatch;
        ready = 0;
        if (needs(p, v, rank, &a[*next], &recv))
            ready = slot[backward ? m : -m];
        if (ready < 0)
            break;
        if (*next > 0 && end[*next - 1] > ready)
            ready = end[*next - 1];
        start[*next] = ready;
        end[*next] = ready + (a[*next].kind == PLAIT_BACKWARD ? 2 : 1);
        if (a[*next].kind != PLAIT_BACKWARD_WEIGHT)
            *slot = end[*next];
    }
    return *next - first;
}

static void time_compute(struct pipeline *pipe, int *next, int64_t *done)
{
    int left = pipe->p * pipe->n, moved;

    memset(done, -1, 2 * (size_t)pipe->p * pipe->v * pipe->m * sizeof(*done));
    while (left > 0) {
        moved = 0;
        for (int rank = 0; rank < pipe->p; rank++)
            moved += advance_rank(pipe, rank, &next[rank], done);
        assert(moved > 0); /* the orders above do not wait in a circle */
        left -= moved;
    }
}

static void pipeline_free(struct pipeline *pipe)
{
    free(pipe->compute);
    free(pipe->start);
    free(pipe->end);
}

static int pipeline_init(struct pipeline *pipe,
                         const struct plait_schedule_form *form)
{
    int p = form->stages, v = form->chunks, m = form->microbatches;
    size_t total;
    int64_t *done;
    int *next;

    *pipe = (struct pipeline){.kind = form->kind, .p = p, .v = v, .m = m};
    pipe->n = m * v * (form->kind == PLAIT_SCHEDULE_ZB_H1 ? 3 : 2);
    total = (size_t)p * pipe->n;
    pipe->compute = calloc(total, sizeof(*pipe->compute));
    pipe->start = calloc(total, sizeof(*pipe->start));
    pipe->end = calloc(total, sizeof(*pipe->end));
    done = calloc(2 * (size_t)p * v * m, sizeof(*done));
    next = calloc(p, sizeof(*next));
    if (!pipe->compute || !pipe->start || !pipe->end || !done || !next) {
        pipeline_free(pipe);
        free(done);
        free(next);
        errno = ENOMEM;
        return -1;
    }
    for (int rank = 0; rank < p; rank++)
        list_compute(pipe, rank);
    time_compute(pipe, next, done);
    free(done);
    free(next);
    return 0;
}

static bool *posted(const struct writer *w, const struct plait_action *recv)
{
    int backward = recv->kind == PLAIT_RECV_BACKWARD;

    return w->posted +
           ((size_t)backward * w->pipe->v + recv->chunk) * w->pipe->m +
           recv->microbatch;
}

static void append_action(struct writer *w, const struct plait_action *action)
{
    w->out->actions[w->out->nactions++] = *action;
}

/* Post the receive `wanted` and, before it, whatever its sender sends
 * earlier: messages between two ranks arrive in the order they were sent. */
static void post_receive(struct writer *w, const struct plait_action *wanted)
{
    const struct pipeline *pipe = w->pipe;
    int p = pipe->p, rank = w->out->rank, peer;
    int before = (rank + p - 1) % p, after = (rank + 1) % p;
    int from = wanted->kind == PLAIT_RECV_FORWARD ? before : after;
    int *cursor = &w->cursor[from != before];
    const struct plait_action *a = pipe->compute + (size_t)from * pipe->n;
    struct plait_action recv;

    while (!*posted(w, wanted)) {
        if (message(p, pipe->v, from, &a[(*cursor)++], &peer, &recv) &&
            peer == rank) {
            append_action(w, &recv);
            *posted(w, &recv) = true;
        }
    }
}

/* When the message that `recv` takes is sent, in the timing of the pipeline. */
static int64_t due(const struct writer *w, const struct plait_action *wanted)
{
    const struct pipeline *pipe = w->pipe;
    int p = pipe->p, rank = w->out->rank, peer;
    int from = (rank + (wanted->kind == PLAIT_RECV_FORWARD ? p - 1 : 1)) % p;
    size_t i = (size_t)from * pipe->n, end = i + pipe->n;
    struct plait_action recv;

    /* The cursor is on or before it. */
    for (i += w->cursor[from != (rank + p - 1) % p]; i < end; i++)
        if (message(p, pipe->v, from, &pipe->compute[i], &peer, &recv) &&
            peer == rank && recv.kind == wanted->kind &&
            recv.chunk == wanted->chunk &&
            recv.microbatch == wanted->microbatch)
            return pipe->end[i];
    return INT64_MAX;
}

/* One computation with the messages around it. The receive for the next one is
 * posted already if by now its message has been sent, so that it is transferred
 * during this computation. Earlier, a communicator that works through its calls
 * one by one would stall on it, and ranks might wait for each other in a
 * circle. */
static void write_compute(struct writer *w, int index)
{
    const struct pipeline *pipe = w->pipe;
    size_t at = (size_t)w->out->rank * pipe->n + index;
    const struct plait_action *a = &pipe->compute[at];
    struct plait_action recv, send = *a;
    int peer;

    if (needs(pipe->p, pipe->v, w->out->rank, a, &recv))
        post_receive(w, &recv);
    if (index + 1 < pipe->n &&
        needs(pipe->p, pipe->v, w->out->rank, a + 1, &recv) &&
        !*posted(w, &recv) && due(w, &recv) <= pipe->start[at])
        post_receive(w, &recv);
    append_action(w, a);
    if (!message(pipe->p, pipe->v, w->out->rank, a, &peer, &recv))
        return;
    send.kind =
        a->kind == PLAIT_FORWARD ? PLAIT_SEND_FORWARD : PLAIT_SEND_BACKWARD;
    append_action(w, &send);
}

/* The most activations held: from a forward to the end of its backward, or of
 * its weight gradient where that is a separate action. */
static int peak(const struct plait_schedule *schedule)
{
    int held = 0, most = 0;

    for (int i = 0; i < schedule->nactions; i++) {
        switch (schedule->actions[i].kind) {
        case PLAIT_FORWARD:
            if (++held > most)
                most = held;
            break;
        case PLAIT_BACKWARD:
        case PLAIT_BACKWARD_WEIGHT:
            held--;
            break;
        default:
            break;
        }
    }
    return most;
}

int plait_schedule_possible(const struct plait_schedule_form *form,
                            struct plait_error *err)
{
    const char *name = plait_schedule_names[form->kind];
    int p = form->stages, v = form->chunks, m = form->microbatches;

    errno = EINVAL;
    if (p < 1 || v < 1 || m < 1)
        return plait_errorf(err,
                            "schedule %s: stages, chunks and micro-batches "
                            "must be at least 1, not %d, %d and %d",
                            name, p, v, m);
    if (v > 1 && form->kind != PLAIT_SCHEDULE_INTERLEAVED)
        return plait_errorf(err,
                            "schedule %s has one chunk per rank, not %d; "
                            "interleaved has more",
                            name, v);
    if (v > 1 && p == 1)
        return plait_errorf(
            err, "schedule %s with %d chunks: pp must be above 1", name, v);
    if (v > 1 && m % p)
        return plait_errorf(err,
                            "schedule %s: %d micro-batches are not divisible "
                            "by pp %d",
                            name, m, p);
    if ((int64_t)m * v > 1 << 24)
        return plait_errorf(err,
                            "schedule %s: %d micro-batches of %d chunks are "
                            "too many",
                            name, m, v);
    return 0;
}

int plait_schedule_slots(const struct plait_schedule_form *form, int rank)
{
    int most, p = form->stages, after = p - 1 - rank;

    if (form->kind == PLAIT_SCHEDULE_NAIVE)
        most = 1;
    else if (form->kind == PLAIT_SCHEDULE_GPIPE)
        most = form->microbatches;
    else if (form->kind == PLAIT_SCHEDULE_ZB_H1)
        most = p;
    else if (form->chunks == 1)
        most = after + 1;
    else if (form->chunks == 2 && 2 * after < p) /* the first chunk's */
        most = p + 2 * after + 1;
    else
        most = 2 * p;
    return most < form->microbatches ? most : form->microbatches;
}

int plait_schedule_held(const struct plait_schedule_form *form, int rank)
{
    int after = form->stages - 1 - rank;
    int64_t most, all = (int64_t)form->chunks * form->microbatches;

    if (form->chunks == 1)
        return plait_schedule_slots(form, rank);
    /* the warm-up's forwards, and the one before the first backward */
    most = 2 * (int64_t)after + (int64_t)(form->chunks - 1) * form->stages + 1;
    return (int)(most < all ? most : all);
}

/* The list of one rank; NULL where memory is out. */
static struct plait_schedule *write_list(const struct pipeline *pipe, int rank)
{
    struct plait_schedule *out = calloc(1, sizeof(*out));
    struct writer w = {.pipe = pipe, .out = out};

    w.posted = calloc(2 * (size_t)pipe->v * pipe->m, sizeof(*w.posted));
    if (!out || !w.posted)
        goto error;
    /* A computation has at most one receive and one send. */
    out->actions = calloc(3 * (size_t)pipe->n, sizeof(*out->actions));
    if (!out->actions)
        goto error;
    out->kind = pipe->kind;
    out->stages = pipe->p;
    out->chunks = pipe->v;
    out->microbatches = pipe->m;
    out->rank = rank;
    for (int i = 0; i < pipe->n; i++)
        write_compute(&w, i);
    out->peak = peak(out);
    free(w.posted);
    return out;
error:
    free(w.posted);
    plait_schedule_destroy(out);
    return NULL;
}

/* The lists of `count` ranks, beginning with rank `first`. If one cannot be
 * made, those before it are destroyed. */
static int write_lists(const struct plait_schedule_form *form, int first,
                       int count, struct plait_schedule **lists,
                       struct plait_error *err)
{
    struct pipeline pipe;
    int i = 0;

    if (plait_schedule_possible(form, err) < 0)
        return -1;
    if (pipeline_init(&pipe, form) == 0) {
        while (i < count && (lists[i] = write_list(&pipe, first + i)))
            i++;
        pipeline_free(&pipe);
    }
    if (i == count)
        return 0;
    while (i-- > 0)
        plait_schedule_destroy(lists[i]);
    errno = ENOMEM;
    return plait_errorf(err, "schedule %s: out of memory",
                        plait_schedule_names[form->kind]);
}

struct plait_schedule *
plait_schedule_create(const struct plait_schedule_form *form, int rank,
                      struct plait_error *err)
{
    struct plait_schedule *list;

    if (rank < 0 || rank >= form->stages) {
        errno = EINVAL;
        plait_errorf(err, "schedule %s: the rank must be from 0 to %d, not %d",
                     plait_schedule_names[form->kind], form->stages - 1, rank);
        return NULL;
    }
    return write_lists(form, rank, 1, &list, err) < 0 ? NULL : list;
}

int plait_schedule_create_all(const struct plait_schedule_form *form,
                              struct plait_schedule **lists,
                              struct plait_error *err)
{
    return write_lists(form, 0, form->stages, lists, err);
}
