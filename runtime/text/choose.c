/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/text/choose.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Random number i of a seed in [0, 1), by SplitMix64 (Steele et al., OOPSLA
 * 2014). */
static double uniform_draw(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (z >> 11) * 0x1p-53;
}

static int likeliest(const float *logits, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* A token and e^((its logit - the largest) / temperature). */
struct candidate {
    double weight;
    int token;
};

/* The more likely one first, of equals the one with the lower number. */
static int compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->token - y->token;
}

/* Move the k likeliest of n to the front, sorted. */
static void take_largest(struct candidate *c, int n, int k)
{
    int have = 0;

    if (k > 1000 || k >= n) {
        qsort(c, n, sizeof(*c), compare);
        return;
    }
    for (int i = 0; i < n; i++) {
        struct candidate now = c[i];
        int at;

        if (have == k && compare(&now, &c[k - 1]) > 0)
            continue;
        have += have < k;
        for (at = have - 1; at > 0 && compare(&now, &c[at - 1]) < 0; at--)
            c[at] = c[at - 1];
        c[at] = now;
    }
}

static double sum_of(const struct candidate *c, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += c[i].weight;
    return sum;
}

/* Move the fewest of n that have the probability p together to the front,
 * sorted; returns how many. */
static int take_nucleus(struct candidate *c, int n, double p)
{
    double sum = sum_of(c, n), least = (1 - p) * sum / n, at = 0;
    int left = 0, i;

    /* All tokens below this weight have less than 1 - p together. */
    for (i = 0; i < n; i++)
        if (c[i].weight >= least)
            c[left++] = c[i];
    qsort(c, left, sizeof(*c), compare);
    for (i = 0; i < left - 1; i++) {
        at += c[i].weight;
        if (at >= p * sum)
            break;
    }
    return i + 1;
}

static int draw(const struct plait_sampling *choice, struct candidate *c, int n,
                double u)
{
    double sum, at = 0;
    int i;

    if (choice->top_k > 0) {
        take_largest(c, n, choice->top_k);
        n = choice->top_k < n ? choice->top_k : n;
    }
    if (choice->top_p < 1)
        n = take_nucleus(c, n, choice->top_p);
    sum = sum_of(c, n);
    for (i = 0; i < n - 1; i++) {
        at += c[i].weight / sum;
        if (u < at)
            break;
    }
    return c[i].token;
}

int plait_choose_token(const struct plait_sampling *choice, const float *logits,
                       int n, int text, int64_t position)
{
    struct candidate *c;
    /* Each text draws from its own seed. */
    uint64_t seed = choice->seed + (uint64_t)text * 0xd1342543de82ef95u;
    double max = -INFINITY;
    int token;

    errno = ERANGE;
    for (int i = 0; i < n; i++) {
        if (isnan(logits[i]))
            return -1;
        max = fmax(max, logits[i]);
    }
    if (!isfinite(max))
        return -1;
    if (!(choice->temperature > 0))
        return likeliest(logits, n);
    c = malloc(n * sizeof(*c));
    if (!c)
        return -1;
    for (int i = 0; i < n; i++)
        c[i] =
            (struct candidate){exp((logits[i] - max) / choice->temperature), i};
    token = draw(choice, c, n, uniform_draw(seed, position));
    free(c);
    return token;
}
