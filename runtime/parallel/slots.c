/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/parallel/slots.h"

#include <stdlib.h>

static void clear_numbers(const struct plait_schedule *s, int *of)
{
    for (int i = 0; i < s->chunks * s->microbatches; i++)
        of[i] = -1;
}

int plait_slots_assign(const struct plait_schedule *s,
                       enum plait_action_kind first,
                       enum plait_action_kind last,
                       enum plait_action_kind other, bool shared, int *of,
                       int *n)
{
    int m = s->microbatches, i, k;
    bool *taken = calloc((size_t)s->chunks * m, sizeof(*taken));

    if (!taken)
        return -1;
    clear_numbers(s, of);
    for (i = 0; i < s->nactions; i++) {
        const struct plait_action *a = &s->actions[i];
        int *at = &of[a->chunk * m + a->microbatch];
        bool *group = taken + (shared ? 0 : a->chunk * m);

        if (a->kind == first) {
            for (k = 0; group[k]; k++)
                ;
            *at = k;
            group[k] = true;
            if (k >= *n)
                *n = k + 1;
        } else if ((a->kind == last || a->kind == other) && *at >= 0) {
            group[*at] = false;
        }
    }
    free(taken);
    return 0;
}

/* Remove the numbers that no action uses. */
static void close_gaps(int *of, int count, int *n)
{
    for (int k = 0; k < *n;) {
        bool used = false;

        for (int i = 0; i < count; i++)
            used = used || of[i] == k;
        if (used) {
            k++;
            continue;
        }
        for (int i = 0; i < count; i++)
            of[i] -= of[i] > k;
        --*n;
    }
}

void plait_slots_follow(const struct plait_schedule *s,
                        enum plait_action_kind kind, const int *slot_of,
                        int slots, int most, int *of, int *n)
{
    int m = s->microbatches, turns = slots < most ? most / slots : 1;

    clear_numbers(s, of);
    for (int i = 0; i < s->nactions; i++) {
        const struct plait_action *a = &s->actions[i];
        int at = a->chunk * m + a->microbatch;

        if (a->kind == kind)
            of[at] =
                (slot_of[at] + a->microbatch / slots % turns * slots) % most;
    }
    *n = most;
    close_gaps(of, s->chunks * m, n);
}
