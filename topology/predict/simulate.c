/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/simulate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topology/predict/simulate_state.h"

const char *const plait_span_names[PLAIT_NSPANS] = {
    "forward", "backward", "backward-input", "backward-weight", "update",
    "bubble",  "wait-pp",  "wait-dp",        "reduce",          "gather"};

void plait_simulation_destroy(struct plait_simulation *s)
{
    int saved = errno;

    if (!s)
        return;
    free(s->ranks);
    free(s->spans);
    free(s);
    errno = saved;
}

int simulator_add_span(struct simulator *s, int rank, enum plait_span_kind kind,
                       const struct plait_action *a, double begin, double end)
{
    struct plait_simulation *out = s->out;
    struct plait_span *bigger;

    if (s->r->sums_only || !(end > begin))
        return 0;
    if (out->nspans == s->room) {
        s->room = s->room ? 2 * s->room : 256;
        bigger = realloc(out->spans, s->room * sizeof(*bigger));
        if (!bigger)
            return -1;
        out->spans = bigger;
    }
    out->spans[out->nspans++] = (struct plait_span){
        rank, kind, a ? a->chunk : -1, a ? a->microbatch : -1, begin, end};
    return 0;
}

static bool is_send(const struct plait_action *a)
{
    return a->kind == PLAIT_SEND_FORWARD || a->kind == PLAIT_SEND_BACKWARD;
}

static struct channel *channel_of(struct simulator *s, int rank,
                                  const struct plait_action *a)
{
    int p = s->r->stages;
    bool ahead =
        a->kind == PLAIT_SEND_FORWARD || a->kind == PLAIT_RECV_BACKWARD;
    int peer = (rank + (ahead ? 1 : p - 1)) % p;
    int from = is_send(a) ? rank : peer, to = is_send(a) ? peer : rank;

    return &s->channels[2 * from + (to != (from + 1) % p)];
}

/* A message starts when both ends have posted it and the one before has
 * arrived. */
static void deliver_messages(struct channel *c)
{
    struct message *m;
    double start;

    for (; c->done < c->sends && c->done < c->recvs; c->done++) {
        m = &c->messages[c->done];
        start = fmax(fmax(m->sent, c->posted[c->done]), c->free);
        m->arrived = c->free = start + c->seconds;
    }
}

static void post_message(struct simulator *s, int rank,
                         const struct plait_action *a)
{
    struct actor *actor = &s->actors[rank];
    struct channel *c = channel_of(s, rank, a);

    if (is_send(a)) {
        c->messages[c->sends++].sent = actor->clock;
    } else {
        actor->number[a - actor->list->actions] = c->recvs;
        c->posted[c->recvs++] = actor->clock;
    }
    deliver_messages(c);
}

/* The message that a computation needs, NULL: none. *known is false if its
 * arrival is not known yet. */
static const struct message *input_of(struct simulator *s, int rank, int index,
                                      bool *known)
{
    const struct plait_schedule *list = s->actors[rank].list;
    const struct plait_action *a = &list->actions[index], *b;
    enum plait_action_kind kind =
        a->kind == PLAIT_FORWARD ? PLAIT_RECV_FORWARD : PLAIT_RECV_BACKWARD;
    const struct message *m;
    int stage = a->chunk * s->r->stages + rank, i;

    *known = true;
    if (a->kind == PLAIT_BACKWARD_WEIGHT ||
        (a->kind == PLAIT_FORWARD ? stage == 0
                                  : stage == s->r->stages * s->r->chunks - 1))
        return NULL;
    for (i = index - 1;; i--) {
        b = &list->actions[i];
        if (b->kind == kind && b->chunk == a->chunk &&
            b->microbatch == a->microbatch)
            break;
    }
    m = &channel_of(s, rank, b)->messages[s->actors[rank].number[i]];
    *known = m->arrived >= 0;
    return m;
}

static double sum_axes(const double *seconds)
{
    double sum = 0;

    for (int i = 0; i < PLAIT_NAXES; i++)
        sum += seconds[i];
    return sum;
}

static double action_seconds(const struct simulator *s, int rank,
                             const struct plait_action *a, double *inner)
{
    const struct plait_stage_time *t =
        &s->r->times[a->chunk * s->r->stages + rank];
    double slow = s->r->slow_rank ? s->r->slow_rank[rank] : 1, seconds = 0;

    *inner = 0;
    if (a->kind == PLAIT_FORWARD) {
        seconds = t->forward;
        *inner = sum_axes(t->forward_comm);
    }
    if (a->kind == PLAIT_BACKWARD || a->kind == PLAIT_BACKWARD_INPUT) {
        seconds = t->backward_input;
        *inner = sum_axes(t->backward_comm);
    }
    if (a->kind == PLAIT_BACKWARD || a->kind == PLAIT_BACKWARD_WEIGHT)
        seconds += t->backward_weight;
    return seconds * slow;
}

static enum plait_span_kind span_of(const struct plait_action *a)
{
    switch (a->kind) {
    case PLAIT_FORWARD:
        return PLAIT_SPAN_FORWARD;
    case PLAIT_BACKWARD:
        return PLAIT_SPAN_BACKWARD;
    case PLAIT_BACKWARD_INPUT:
        return PLAIT_SPAN_BACKWARD_INPUT;
    default:
        return PLAIT_SPAN_BACKWARD_WEIGHT;
    }
}

/* ZeRO 3 gathers the weights of computation `a`, from `now` on; it may begin
 * with the first of its blocks. */
static int gather_weights(struct simulator *s, int rank,
                          const struct plait_action *a, double now)
{
    const struct plait_stage_time *time =
        &s->r->times[a->chunk * s->r->stages + rank];
    struct actor *actor = &s->actors[rank];
    double begin = fmax(actor->traffic, now);

    actor->weights = actor->first = 0;
    actor->blocks = 1;
    if (time->gather <= 0 || a->kind == PLAIT_BACKWARD_WEIGHT)
        return 0;
    actor->blocks = time->blocks > 0 ? time->blocks : 1;
    actor->first = begin + time->gather / actor->blocks;
    actor->weights = actor->traffic = begin + time->gather;
    actor->owed += time->gather;
    return simulator_add_span(s, rank, PLAIT_SPAN_GATHER, a, begin,
                              actor->weights);
}

/* plait-train gathers a pass ahead: while one computation runs, the weights of
 * this rank's next one. */
static int gather_next(struct simulator *s, int rank, double now)
{
    struct actor *actor = &s->actors[rank];
    const struct plait_action *a = &actor->list->actions[actor->next];
    const struct plait_action *end =
        actor->list->actions + actor->list->nactions;

    if (actor->gathered)
        a++;
    actor->gathered = true;
    while (a < end && a->kind >= PLAIT_SEND_FORWARD)
        a++;
    return a < end ? gather_weights(s, rank, a, now) : 0;
}

/* Gradients are reduced bucket by bucket while the backward pass still runs; or
 * late: after it, and where that is once a step, after all passes
 * (simulate_close.c). */
static int reduce_gradients(struct simulator *s, int rank,
                            const struct plait_action *a, double begin,
                            double end)
{
    const struct plait_stage_time *t =
        &s->r->times[a->chunk * s->r->stages + rank];
    struct actor *actor = &s->actors[rank];

    if (!simulator_reduces(s, t, a))
        return 0;
    if (s->r->reduce_late && !s->r->reduce_each) {
        actor->late += t->reduce;
        return 0;
    }
    for (int i = 1; i <= t->buckets; i++) {
        double done = s->r->reduce_late ? 1 : (double)i / t->buckets;
        double from = fmax(actor->traffic, begin + (end - begin) * done);

        actor->traffic = from + t->reduce / t->buckets;
        if (simulator_add_span(s, rank, PLAIT_SPAN_REDUCE, a, from,
                               actor->traffic) < 0)
            return -1;
    }
    if (!s->r->reduce_late)
        actor->owed += t->reduce;
    if (!s->r->reduce_late && !(s->r->in_pass && t->gather > 0))
        return 0;
    begin = actor->clock;
    actor->clock = actor->traffic;
    s->out->ranks[rank].wait_dp += actor->clock - begin;
    return simulator_add_span(s, rank, PLAIT_SPAN_WAIT_DP, a, begin,
                              actor->clock);
}

/* When a pass of this length can begin and have the weights of each block by
 * the time that it comes to it. */
static double weights_at(const struct actor *a, double seconds)
{
    return fmax(a->first, a->weights - seconds * (a->blocks - 1) / a->blocks);
}

/* How much longer a pass takes because of the traffic beside it. */
static double slowed(const struct simulator *s, struct actor *a, double seconds,
                     double waited)
{
    double beside;

    a->owed = fmax(0, a->owed - waited);
    beside = fmin(a->owed, seconds);
    a->owed -= beside;
    return beside * s->r->beside;
}

/* One computation and the wait before it, which counts by what was missing: the
 * other rank's result, its transfer, or the weights. */
static int compute_action(struct simulator *s, int rank,
                          const struct plait_action *a,
                          const struct message *input)
{
    struct plait_rank_time *sum = &s->out->ranks[rank];
    struct actor *actor = &s->actors[rank];
    double inner, seconds = action_seconds(s, rank, a, &inner);
    double at = actor->clock, made, there, begin, within;

    if (!s->r->in_pass && !actor->gathered && gather_next(s, rank, 0) < 0)
        return -1;
    made = fmax(at, input ? input->sent : 0);
    there = fmax(made, input ? input->arrived : 0);
    if (s->r->in_pass && gather_weights(s, rank, a, there) < 0)
        return -1;
    begin = fmax(there, weights_at(actor, seconds + inner));
    seconds += slowed(s, actor, seconds + inner, begin - there);
    within =
        simulator_reduced_within(s, rank, a, begin, begin + seconds + inner);
    actor->owed -= within;
    seconds += within * s->r->beside;
    sum->bubble += made - at;
    sum->wait_pp += there - made;
    sum->wait_dp += begin - there;
    sum->compute += seconds;
    sum->inner += inner;
    actor->clock = begin + seconds + inner;
    if (simulator_add_span(s, rank, PLAIT_SPAN_BUBBLE, NULL, at, made) < 0 ||
        simulator_add_span(s, rank, PLAIT_SPAN_WAIT_PP, NULL, made, there) <
            0 ||
        simulator_add_span(s, rank, PLAIT_SPAN_WAIT_DP, NULL, there, begin) <
            0 ||
        simulator_add_span(s, rank, span_of(a), a, begin, actor->clock) < 0 ||
        (!s->r->in_pass && gather_next(s, rank, begin) < 0))
        return -1;
    return reduce_gradients(s, rank, a, begin, actor->clock);
}

/* Run a rank as far as its messages have arrived. Returns the number of
 * actions, -1: out of memory. */
static int advance_rank(struct simulator *s, int rank)
{
    struct actor *actor = &s->actors[rank];
    const struct plait_action *a;
    const struct message *input;
    int first = actor->next;
    bool known;

    for (; actor->next < actor->list->nactions; actor->next++) {
        a = &actor->list->actions[actor->next];
        if (a->kind >= PLAIT_SEND_FORWARD) {
            post_message(s, rank, a);
            continue;
        }
        input = input_of(s, rank, actor->next, &known);
        if (!known)
            break;
        if (compute_action(s, rank, a, input) < 0)
            return -1;
    }
    return actor->next - first;
}

static int by_rank(const void *a, const void *b)
{
    const struct plait_span *x = a, *y = b;
    bool traffic_x = x->kind >= PLAIT_SPAN_REDUCE;
    bool traffic_y = y->kind >= PLAIT_SPAN_REDUCE;

    if (x->rank != y->rank)
        return x->rank - y->rank;
    if (traffic_x != traffic_y)
        return traffic_x - traffic_y;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int run_step(struct simulator *s)
{
    int moved, n;

    do {
        for (int rank = moved = 0; rank < s->r->stages; rank++) {
            n = advance_rank(s, rank);
            if (n < 0)
                return -1;
            moved += n;
        }
    } while (moved > 0);
    if (simulator_close_step(s) < 0)
        return -1;
    if (s->out->nspans > 0)
        qsort(s->out->spans, s->out->nspans, sizeof(*s->out->spans), by_rank);
    return 0;
}

static int init_channels(struct simulator *s)
{
    int p = s->r->stages, room = 2 * s->r->chunks * s->r->microbatches;

    for (int i = 0; i < 2 * p; i++) {
        struct channel *c = &s->channels[i];
        /* link l is between the stages l and l + 1; two stages have one */
        int link = p == 2 ? 0 : i % 2 ? (i / 2 + p - 1) % p : i / 2;

        c->seconds = s->r->message;
        if (s->r->slow_link)
            c->seconds *= s->r->slow_link[link];
        c->messages = calloc(room, sizeof(*c->messages));
        c->posted = calloc(room, sizeof(*c->posted));
        if (!c->messages || !c->posted)
            return -1;
        for (int k = 0; k < room; k++)
            c->messages[k].sent = c->messages[k].arrived = -1;
    }
    return 0;
}

static struct plait_schedule_form
form_of(const struct plait_simulation_request *r)
{
    return (struct plait_schedule_form){r->schedule, r->stages, r->chunks,
                                        r->microbatches};
}

static int init_simulator(struct simulator *s, struct plait_error *err)
{
    const struct plait_simulation_request *r = s->r;
    const struct plait_schedule_form form = form_of(r);
    struct plait_schedule **lists;
    int p = r->stages;

    s->actors = calloc(p, sizeof(*s->actors));
    s->channels = calloc(2 * (size_t)p, sizeof(*s->channels));
    s->out = calloc(1, sizeof(*s->out));
    if (!s->actors || !s->channels || !s->out || init_channels(s) < 0)
        return plait_errorf(err, "out of memory");
    s->out->ranks = calloc(p, sizeof(*s->out->ranks));
    if (!s->out->ranks)
        return plait_errorf(err, "out of memory");
    s->out->stages = p;
    s->out->chunks = r->chunks;
    s->out->microbatches = r->microbatches;
    s->out->schedule = r->schedule;
    lists = calloc(p, sizeof(*lists));
    if (!lists)
        return plait_errorf(err, "out of memory");
    if (plait_schedule_create_all(&form, lists, err) < 0) {
        free(lists);
        return -1;
    }
    for (int rank = 0; rank < p; rank++)
        s->actors[rank].list = lists[rank];
    free(lists);
    for (int rank = 0; rank < p; rank++) {
        struct actor *actor = &s->actors[rank];

        s->out->ranks[rank].peak = actor->list->peak;
        actor->number = calloc(actor->list->nactions, sizeof(int));
        if (!actor->number)
            return plait_errorf(err, "out of memory");
    }
    return 0;
}

static void release_simulator(struct simulator *s)
{
    for (int i = 0; s->actors && i < s->r->stages; i++) {
        plait_schedule_destroy(s->actors[i].list);
        free(s->actors[i].number);
    }
    for (int i = 0; s->channels && i < 2 * s->r->stages; i++) {
        free(s->channels[i].messages);
        free(s->channels[i].posted);
    }
    free(s->actors);
    free(s->channels);
}

struct plait_simulation *
plait_simulation_create(const struct plait_simulation_request *request,
                        struct plait_error *err)
{
    const struct plait_schedule_form form = form_of(request);
    struct simulator s = {.r = request};
    int rc = -1;

    if (plait_schedule_possible(&form, err) < 0)
        return NULL;
    if (init_simulator(&s, err) == 0) {
        rc = run_step(&s);
        if (rc < 0)
            plait_errorf(err, "out of memory");
    }
    release_simulator(&s);
    if (rc == 0)
        return s.out;
    plait_simulation_destroy(s.out);
    return NULL;
}

void plait_simulation_mean(const struct plait_simulation *s,
                           struct plait_rank_time *mean)
{
    double n = s->stages;

    memset(mean, 0, sizeof(*mean));
    for (int i = 0; i < s->stages; i++) {
        mean->compute += s->ranks[i].compute / n;
        mean->inner += s->ranks[i].inner / n;
        mean->bubble += s->ranks[i].bubble / n;
        mean->wait_pp += s->ranks[i].wait_pp / n;
        mean->wait_dp += s->ranks[i].wait_dp / n;
        mean->hidden += s->ranks[i].hidden / n;
        if (s->ranks[i].peak > mean->peak)
            mean->peak = s->ranks[i].peak;
    }
}
