/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "schedule_check.h"

/* How far a (chunk, micro-batch) has come on its rank. */
enum {
    IN_POSTED = 1 << 0,
    FORWARD_DONE = 1 << 1,
    OUT_SENT = 1 << 2,
    GRAD_POSTED = 1 << 3,
    INPUT_DONE = 1 << 4,
    GRAD_SENT = 1 << 5,
    WEIGHT_DONE = 1 << 6
};

static const char *const action_names[PLAIT_NACTIONS] = {
    "forward",      "backward",     "backward-input", "backward-weight",
    "send-forward", "recv-forward", "send-backward",  "recv-backward"};

static int fault(const struct plait_schedule *s, int index,
                 struct plait_error *err, const char *what)
{
    const struct plait_action *a = &s->actions[index];

    errno = EINVAL;
    return plait_errorf(
        err,
        "rank %d, action %d (%s of chunk %d, micro-batch %d): "
        "%s",
        s->rank, index,
        (unsigned)a->kind < PLAIT_NACTIONS ? action_names[a->kind] : "unknown",
        a->chunk, a->microbatch, what);
}

/* What must have happened (and what must not) to an action's (chunk,
 * micro-batch) before it; and what has, after it. */
struct rule {
    unsigned wants, adds;
    const char *early;
};

static const struct rule rules[PLAIT_NACTIONS] = {
    [PLAIT_FORWARD] = {IN_POSTED, FORWARD_DONE, "its input was not received"},
    [PLAIT_BACKWARD] = {FORWARD_DONE | GRAD_POSTED, INPUT_DONE | WEIGHT_DONE,
                        "its forward or its gradient is missing"},
    [PLAIT_BACKWARD_INPUT] = {FORWARD_DONE | GRAD_POSTED, INPUT_DONE,
                              "its forward or its gradient is missing"},
    [PLAIT_BACKWARD_WEIGHT] = {INPUT_DONE, WEIGHT_DONE,
                               "its input gradient comes later"},
    [PLAIT_SEND_FORWARD] = {FORWARD_DONE, OUT_SENT, "its forward comes later"},
    [PLAIT_RECV_FORWARD] = {0, IN_POSTED, ""},
    [PLAIT_SEND_BACKWARD] = {INPUT_DONE, GRAD_SENT, "its backward comes later"},
    [PLAIT_RECV_BACKWARD] = {0, GRAD_POSTED, ""},
};

/* What never happens at the ends of the pipeline counts as done. */
static unsigned initial_state(const struct plait_schedule *s, int chunk)
{
    int stage = chunk * s->stages + s->rank;
    unsigned state = 0;

    if (stage == 0)
        state |= IN_POSTED | GRAD_SENT;
    if (stage == s->stages * s->chunks - 1)
        state |= OUT_SENT | GRAD_POSTED;
    return state;
}

/* Forward, input gradient and weight gradient each keep the order of the
 * micro-batches: sums of gradients come out the same under every schedule. */
static int check_overtaking(const struct plait_schedule *s, int index,
                            int *last, struct plait_error *err)
{
    const struct plait_action *a = &s->actions[index];
    int pass = a->kind == PLAIT_FORWARD           ? 0
               : a->kind == PLAIT_BACKWARD_WEIGHT ? 2
                                                  : 1;
    int *before = &last[pass * s->chunks + a->chunk];

    if (a->kind > PLAIT_BACKWARD_WEIGHT)
        return 0;
    if (a->microbatch <= *before)
        return fault(s, index, err, "it overtakes another micro-batch");
    *before = a->microbatch;
    return 0;
}

/* Each action comes once and after what it needs, and no more activations are
 * held than the list's peak. `state` [v][m], `last` [3][v]. */
static int check_order(const struct plait_schedule *s, unsigned *state,
                       int *last, struct plait_error *err)
{
    int i, held = 0;

    for (i = 0; i < s->nactions; i++) {
        const struct plait_action *a = &s->actions[i];
        const struct rule *rule = &rules[a->kind];
        unsigned *at =
            &state[(size_t)a->chunk * s->microbatches + a->microbatch];

        if (*at & rule->adds)
            return fault(s, i, err, "it has no place here, or a second one");
        if ((*at & rule->wants) != rule->wants)
            return fault(s, i, err, rule->early);
        *at |= rule->adds;
        if (a->kind == PLAIT_FORWARD && ++held > s->peak)
            return fault(s, i, err, "more activations than the peak says");
        if (rule->adds & WEIGHT_DONE)
            held--;
        if (check_overtaking(s, i, last, err) < 0)
            return -1;
    }
    return 0;
}

static int check_list(const struct plait_schedule *s, struct plait_error *err)
{
    int pairs = s->chunks * s->microbatches, i, rc = -1;
    unsigned *state = calloc(pairs, sizeof(*state));
    int *last = calloc(3 * (size_t)s->chunks, sizeof(*last));

    if (!state || !last) {
        plait_errorf(err, "out of memory");
        goto done;
    }
    for (i = 0; i < pairs; i++)
        state[i] = initial_state(s, i / s->microbatches);
    for (i = 0; i < 3 * s->chunks; i++)
        last[i] = -1;
    if (check_order(s, state, last, err) < 0)
        goto done;
    for (i = 0; i < pairs; i++) {
        if (state[i] != 2 * WEIGHT_DONE - 1) {
            errno = EINVAL;
            plait_errorf(err,
                         "rank %d: chunk %d, micro-batch %d is not finished "
                         "at the end",
                         s->rank, i / s->microbatches, i % s->microbatches);
            goto done;
        }
    }
    rc = 0;
done:
    free(state);
    free(last);
    return rc;
}

/* The messages from one rank to one of its two neighbours. With two ranks both
 * neighbours are the same rank, and there is one channel. */
struct channel {
    int sends, recvs; /* posted so far */
    int room;
    struct plait_action *sent, *expected; /* [room], as the receiver names it */
};

/* How far a rank has come: the run of messages that it waits for begins at
 * `group` and ends before `next`. */
struct progress {
    int group, next;
    int *number; /* [nactions] each message's place in its channel */
};

static int peer_of(const struct plait_schedule *s, const struct plait_action *a)
{
    int p = s->stages;
    bool ahead =
        a->kind == PLAIT_SEND_FORWARD || a->kind == PLAIT_RECV_BACKWARD;

    return (s->rank + (ahead ? 1 : p - 1)) % p;
}

static bool is_send(const struct plait_action *a)
{
    return a->kind == PLAIT_SEND_FORWARD || a->kind == PLAIT_SEND_BACKWARD;
}

static bool is_message(const struct plait_action *a)
{
    return a->kind >= PLAIT_SEND_FORWARD;
}

static struct channel *channel_of(struct channel *channels,
                                  const struct plait_schedule *s,
                                  const struct plait_action *a)
{
    int peer = peer_of(s, a);
    int from = is_send(a) ? s->rank : peer, to = is_send(a) ? peer : s->rank;

    return &channels[2 * from + (to != (from + 1) % s->stages)];
}

/* The receive that takes what a send of this rank sends. */
static struct plait_action received_as(const struct plait_schedule *s,
                                       const struct plait_action *a)
{
    int stage = a->chunk * s->stages + s->rank;
    struct plait_action recv = *a;

    if (a->kind == PLAIT_SEND_FORWARD) {
        recv.kind = PLAIT_RECV_FORWARD;
        recv.chunk = (stage + 1) / s->stages;
    } else {
        recv.kind = PLAIT_RECV_BACKWARD;
        recv.chunk = (stage - 1) / s->stages;
    }
    return recv;
}

/* Number every message in its channel, and compare the k-th send of each with
 * the k-th receive. */
static int check_channels(struct plait_schedule *const *ranks, int p,
                          struct channel *channels, struct progress *progress,
                          struct plait_error *err)
{
    int rank, i, k;

    for (rank = 0; rank < p; rank++) {
        const struct plait_schedule *s = ranks[rank];

        for (i = 0; i < s->nactions; i++) {
            const struct plait_action *a = &s->actions[i];
            struct channel *c;

            if (!is_message(a))
                continue;
            c = channel_of(channels, s, a);
            k = is_send(a) ? c->sends++ : c->recvs++;
            progress[rank].number[i] = k;
            if (k >= c->room)
                return fault(s, i, err, "one message too many");
            if (is_send(a))
                c->sent[k] = received_as(s, a);
            else
                c->expected[k] = *a;
        }
    }
    for (i = 0; i < 2 * p; i++) {
        struct channel *c = &channels[i];

        errno = EINVAL;
        if (c->sends != c->recvs)
            return plait_errorf(err,
                                "rank %d sends %d messages to rank %d, which "
                                "receives %d",
                                i / 2, c->sends,
                                (i / 2 + (i % 2 ? p - 1 : 1)) % p, c->recvs);
        for (k = 0; k < c->sends; k++)
            if (c->sent[k].kind != c->expected[k].kind ||
                c->sent[k].chunk != c->expected[k].chunk ||
                c->sent[k].microbatch != c->expected[k].microbatch)
                return plait_errorf(
                    err,
                    "message %d from rank %d: sent for %s of chunk %d, "
                    "micro-batch %d, received as %s of chunk %d, micro-batch "
                    "%d",
                    k, i / 2, action_names[c->sent[k].kind], c->sent[k].chunk,
                    c->sent[k].microbatch, action_names[c->expected[k].kind],
                    c->expected[k].chunk, c->expected[k].microbatch);
        c->sends = c->recvs = 0;
    }
    return 0;
}

/* Has every message that the rank waits for been matched by its peer? -1, or
 * the first action that has not. */
static int waits_for(const struct plait_schedule *s,
                     const struct progress *progress, struct channel *channels)
{
    int i;

    for (i = progress->group; i < progress->next; i++) {
        const struct plait_action *a = &s->actions[i];
        struct channel *c = channel_of(channels, s, a);

        if (progress->number[i] >= (is_send(a) ? c->recvs : c->sends))
            return i;
    }
    return -1;
}

/* Go on as far as possible; returns the number of actions begun. */
static int advance_rank(const struct plait_schedule *s,
                        struct progress *progress, struct channel *channels)
{
    int first = progress->next;
    struct channel *c;

    while (waits_for(s, progress, channels) < 0 &&
           progress->next < s->nactions) {
        while (progress->next < s->nactions &&
               !is_message(&s->actions[progress->next]))
            progress->next++;
        progress->group = progress->next;
        while (progress->next < s->nactions &&
               is_message(&s->actions[progress->next])) {
            c = channel_of(channels, s, &s->actions[progress->next++]);
            if (is_send(&s->actions[progress->next - 1]))
                c->sends++;
            else
                c->recvs++;
        }
    }
    return progress->next - first;
}

/* Run all lists together in the strictest way: adjacent messages are one group,
 * and a rank goes on only when each message of its group has been matched by
 * the peer. What runs to the end like this does so on every communicator: one
 * that buffers, one that synchronizes (MPI's synchronous send), one that works
 * through its groups in order (NCCL on one stream). */
static int check_progress(struct plait_schedule *const *ranks, int p,
                          struct channel *channels, struct progress *progress,
                          struct plait_error *err)
{
    int rank, moved, i;

    do {
        moved = 0;
        for (rank = 0; rank < p; rank++)
            moved += advance_rank(ranks[rank], &progress[rank], channels);
    } while (moved > 0);
    for (rank = 0; rank < p; rank++) {
        i = waits_for(ranks[rank], &progress[rank], channels);
        if (i >= 0)
            return fault(ranks[rank], i, err, "waits for ever");
    }
    return 0;
}

static int check_shape(struct plait_schedule *const *ranks, int p,
                       struct plait_error *err)
{
    const struct plait_schedule *s, *first = ranks[0];
    int rank, i;

    for (rank = 0; rank < p; rank++) {
        s = ranks[rank];
        errno = EINVAL;
        if (s->rank != rank || s->stages != p || s->kind != first->kind ||
            s->chunks < 1 || s->chunks != first->chunks ||
            s->microbatches < 1 || s->microbatches != first->microbatches)
            return plait_errorf(err, "list %d is not of the same run", rank);
        for (i = 0; i < s->nactions; i++) {
            const struct plait_action *a = &s->actions[i];

            if ((unsigned)a->kind >= PLAIT_NACTIONS || a->chunk < 0 ||
                a->chunk >= s->chunks || a->microbatch < 0 ||
                a->microbatch >= s->microbatches)
                return fault(s, i, err, "out of range");
            if ((a->kind == PLAIT_BACKWARD) ==
                    (s->kind == PLAIT_SCHEDULE_ZB_H1) &&
                a->kind >= PLAIT_BACKWARD && a->kind <= PLAIT_BACKWARD_WEIGHT)
                return fault(s, i, err, "not an action of this schedule");
        }
    }
    return 0;
}

static void free_run(int p, struct channel *channels, struct progress *progress)
{
    int i;

    for (i = 0; channels && i < 2 * p; i++) {
        free(channels[i].sent);
        free(channels[i].expected);
    }
    for (i = 0; progress && i < p; i++)
        free(progress[i].number);
    free(channels);
    free(progress);
}

static int check_run(struct plait_schedule *const *ranks, int p,
                     struct plait_error *err)
{
    struct channel *channels = calloc(2 * (size_t)p, sizeof(*channels));
    struct progress *progress = calloc(p, sizeof(*progress));
    int i, rc = -1;

    if (!channels || !progress)
        goto memory;
    for (i = 0; i < 2 * p; i++) {
        struct channel *c = &channels[i];

        c->room = 2 * ranks[0]->chunks * ranks[0]->microbatches;
        c->sent = calloc(c->room, sizeof(*c->sent));
        c->expected = calloc(c->room, sizeof(*c->expected));
        if (!c->sent || !c->expected)
            goto memory;
    }
    for (i = 0; i < p; i++) {
        progress[i].number = calloc(ranks[i]->nactions + 1, sizeof(int));
        if (!progress[i].number)
            goto memory;
    }
    if (check_channels(ranks, p, channels, progress, err) == 0 &&
        check_progress(ranks, p, channels, progress, err) == 0)
        rc = 0;
    free_run(p, channels, progress);
    return rc;
memory:
    free_run(p, channels, progress);
    errno = ENOMEM;
    return plait_errorf(err, "out of memory");
}

int check_schedule(struct plait_schedule *const *ranks, int n,
                   struct plait_error *err)
{
    int rank;

    if (n < 1) {
        errno = EINVAL;
        return plait_errorf(err, "no lists to check");
    }
    if (check_shape(ranks, n, err) < 0)
        return -1;
    for (rank = 0; rank < n; rank++)
        if (check_list(ranks[rank], err) < 0)
            return -1;
    return check_run(ranks, n, err);
}
