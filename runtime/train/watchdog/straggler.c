/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/watchdog/straggler.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    float seconds;
    int stage, rank;
};

static int by_time(const void *a, const void *b)
{
    float x = ((const struct entry *)a)->seconds,
          y = ((const struct entry *)b)->seconds;

    return (x > y) - (x < y);
}

static int by_stage(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return x->stage != y->stage ? (x->stage > y->stage) - (x->stage < y->stage)
                                : by_time(a, b);
}

/* entry[n] of one stage, ascending. */
static void judge_stage(const struct entry *e, int n,
                        struct plait_rank_times *t)
{
    double median = e[(n - 1) / 2].seconds;
    double ratio = median > 0 ? e[n - 1].seconds / median : 1;

    if (n < 2 || (t->behind >= 0 && ratio <= t->ratio))
        return;
    t->behind = e[n - 1].rank;
    t->ratio = ratio;
}

int plait_rank_times(const float *seconds, const int *stage, int n,
                     struct plait_rank_times *times)
{
    struct entry *e = calloc((size_t)n, sizeof(*e));
    struct plait_rank_times t = {.behind = -1, .ratio = 1};
    int first = 0;

    if (!e)
        return -1;
    for (int i = 0; i < n; i++)
        e[i] = (struct entry){seconds[i], stage[i], i};
    qsort(e, (size_t)n, sizeof(*e), by_time);
    t.min = e[0].seconds;
    t.median = e[(n - 1) / 2].seconds;
    t.max = e[n - 1].seconds;
    t.slowest = e[n - 1].rank;
    qsort(e, (size_t)n, sizeof(*e), by_stage);
    for (int i = 1; i <= n; i++)
        if (i == n || e[i].stage != e[first].stage) {
            judge_stage(e + first, i - first, &t);
            first = i;
        }
    free(e);
    *times = t;
    return 0;
}

bool plait_straggler_update(struct plait_straggler *who,
                            const struct plait_rank_times *times, int64_t step,
                            int steps)
{
    int behind = times->ratio > PLAIT_STRAGGLER_RATIO ? times->behind : -1;

    if (behind != who->rank)
        *who = (struct plait_straggler){.rank = behind, .since = step - steps};
    if (behind < 0 || who->said || step - who->since < PLAIT_STRAGGLER_STEPS)
        return false;
    who->said = true;
    return true;
}
