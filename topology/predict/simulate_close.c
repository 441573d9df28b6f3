/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of gradients beside a pass, and the end of a simulated step: those that
 * are left, the optimizer, and the gathering of its weights. */
#include <math.h>

#include "topology/predict/simulate_state.h"

bool simulator_reduces(const struct simulator *s,
                       const struct plait_stage_time *t,
                       const struct plait_action *a)
{
    return t->reduce > 0 &&
           (a->kind == PLAIT_BACKWARD || a->kind == PLAIT_BACKWARD_WEIGHT) &&
           (s->r->reduce_each || a->microbatch == s->r->microbatches - 1);
}

double simulator_reduced_within(const struct simulator *s, int rank,
                                const struct plait_action *a, double begin,
                                double end)
{
    const struct plait_stage_time *t =
        &s->r->times[a->chunk * s->r->stages + rank];
    double at = s->actors[rank].traffic, one, sum = 0;

    if (!simulator_reduces(s, t, a) || s->r->reduce_late)
        return 0;
    one = t->reduce / t->buckets;
    for (int i = 1; i < t->buckets; i++) {
        at = fmax(at, begin + (end - begin) * i / t->buckets);
        sum += fmax(0, fmin(one, end - at));
        at += one;
    }
    return sum;
}

/* When a rank's own gradients are reduced. */
static double reduced_at(const struct actor *a)
{
    return fmax(a->clock, a->traffic) + a->late;
}

/* When the two ends of the pipeline start to sum the gradients of a tied
 * embedding; for other ranks, when their own are reduced. */
static double tied_at(const struct simulator *s, int rank)
{
    int last = s->r->stages - 1;

    if (s->r->tied <= 0 || (rank != 0 && rank != last))
        return reduced_at(&s->actors[rank]);
    return fmax(reduced_at(&s->actors[0]), reduced_at(&s->actors[last]));
}

static double complete_at(const struct simulator *s, int rank)
{
    int end = rank == 0 || rank == s->r->stages - 1;

    return tied_at(s, rank) + (end ? s->r->tied : 0);
}

/* Append the rank's next span, from *at to `until`. */
static int follow(struct simulator *s, int rank, enum plait_span_kind kind,
                  double *sum, double *at, double until)
{
    *sum += until - *at;
    if (simulator_add_span(s, rank, kind, NULL, *at, until) < 0)
        return -1;
    *at = until;
    return 0;
}

/* Traffic during computing for which no rank waited. */
static void sum_hidden(struct plait_simulation *out)
{
    for (int i = 0; i < out->nspans; i++) {
        const struct plait_span *span = &out->spans[i];

        if (span->kind == PLAIT_SPAN_REDUCE || span->kind == PLAIT_SPAN_GATHER)
            out->ranks[span->rank].hidden += span->end - span->begin;
    }
    for (int i = 0; i < out->stages; i++)
        out->ranks[i].hidden =
            fmax(0, out->ranks[i].hidden - out->ranks[i].wait_dp);
}

int simulator_close_step(struct simulator *s)
{
    double norm = 0, updated, at;
    int p = s->r->stages;

    for (int rank = 0; rank < p; rank++)
        norm = fmax(norm, complete_at(s, rank));
    updated = norm + s->r->update;
    s->out->step = updated + s->r->gather_updated;
    for (int rank = 0; rank < p; rank++) {
        struct plait_rank_time *t = &s->out->ranks[rank];

        at = s->actors[rank].clock;
        if (follow(s, rank, PLAIT_SPAN_WAIT_DP, &t->wait_dp, &at,
                   reduced_at(&s->actors[rank])) < 0 ||
            follow(s, rank, PLAIT_SPAN_BUBBLE, &t->bubble, &at,
                   tied_at(s, rank)) < 0 ||
            follow(s, rank, PLAIT_SPAN_WAIT_DP, &t->wait_dp, &at,
                   complete_at(s, rank)) < 0 ||
            follow(s, rank, PLAIT_SPAN_BUBBLE, &t->bubble, &at, norm) < 0 ||
            follow(s, rank, PLAIT_SPAN_UPDATE, &t->compute, &at, updated) < 0 ||
            follow(s, rank, PLAIT_SPAN_WAIT_DP, &t->wait_dp, &at,
                   s->out->step) < 0 ||
            simulator_add_span(s, rank, PLAIT_SPAN_GATHER, NULL, updated,
                               s->out->step) < 0)
            return -1;
    }
    sum_hidden(s->out);
    return 0;
}
