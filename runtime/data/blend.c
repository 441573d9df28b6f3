/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/data/blend.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* A set is due its next sample, the c-th counted from 0, once n * share > c,
 * and must get it before n * share is c + 1. Of the sets that are due, the one
 * with the earliest deadline gets the sample, which meets all deadlines: this
 * is scheduling of unit jobs, whose shares sum to one, by the earliest deadline
 * (Baruah, Cohen, Plaxton and Varvel, Algorithmica 15, 1996; Tijdeman's
 * chairman assignment, 1980). It uses whole numbers, so that it is exact. */

struct set {
    int64_t share;  /* of the blend's period */
    int64_t credit; /* samples due minus samples had, times the period */
    int64_t had;    /* samples in this period */
};

struct plait_blend {
    int n;
    int64_t period; /* the shares' sum */
    int64_t at;     /* samples assigned so far */
    struct set set[];
};

static int64_t common_divisor(int64_t a, int64_t b)
{
    int64_t rest;

    for (; b; a = b, b = rest)
        rest = a % b;
    return a;
}

/* Whether all weights are whole numbers when multiplied by `factor`. */
static bool are_whole(const double *weights, int n, double factor)
{
    for (int i = 0; i < n; i++)
        if (fabs(rint(weights[i] * factor) - weights[i] * factor) >
            1e-9 * weights[i] * factor + 1e-12)
            return false;
    return true;
}

static void set_shares(struct plait_blend *b, const double *weights)
{
    double sum = 0, factor = 1;
    int64_t divisor = 0;

    for (int i = 0; i < b->n; i++)
        sum += weights[i];
    while (factor < 1e6 && !are_whole(weights, b->n, factor))
        factor *= 10;
    if (!are_whole(weights, b->n, factor) || sum * factor > 0x1p40)
        factor = 0x1p40 / sum;
    for (int i = 0; i < b->n; i++) {
        b->set[i].share = (int64_t)rint(weights[i] * factor);
        if (b->set[i].share < 1)
            b->set[i].share = 1;
        divisor = common_divisor(b->set[i].share, divisor);
    }
    for (int i = 0; i < b->n; i++) {
        b->set[i].share /= divisor;
        b->period += b->set[i].share;
    }
}

struct plait_blend *plait_blend_create(const double *weights, int n)
{
    struct plait_blend *b;

    for (int i = 0; i < n; i++) {
        if (!(weights[i] > 0) || !isfinite(weights[i])) {
            errno = EINVAL;
            return NULL;
        }
    }
    b = calloc(1, sizeof(*b) + (size_t)n * sizeof(b->set[0]));
    if (!b)
        return NULL;
    b->n = n;
    set_shares(b, weights);
    return b;
}

void plait_blend_destroy(struct plait_blend *blend)
{
    free(blend);
}

/* The set that gets sample number b->at. */
static int assign_next(struct plait_blend *b)
{
    int64_t wait, least = INT64_MAX;
    int best = 0;

    for (int i = 0; i < b->n; i++) {
        struct set *s = &b->set[i];

        s->credit += s->share;
        if (s->credit <= 0)
            continue;
        /* Samples until this set's deadline. */
        wait = (b->period - s->credit + s->share - 1) / s->share;
        if (wait < least) {
            least = wait;
            best = i;
        }
    }
    b->set[best].credit -= b->period;
    b->set[best].had++;
    b->at++;
    return best;
}

static void start_period(struct plait_blend *b, int64_t at)
{
    for (int i = 0; i < b->n; i++)
        b->set[i].credit = b->set[i].had = 0;
    b->at = at;
}

int plait_blend_find(struct plait_blend *b, int64_t position, int64_t *in_set)
{
    int64_t first = position / b->period * b->period;
    int set;

    if (b->at > position || b->at <= first)
        start_period(b, first);
    do
        set = assign_next(b);
    while (b->at <= position);
    *in_set = position / b->period * b->set[set].share + b->set[set].had - 1;
    return set;
}
