/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/parallel/slots.h"

#include <stdlib.h>

static void clear_numbers(const struct plait_schedule *s, int *of)
{
    for (int i = 0; i < s->chunks * s->microbatches; i++)
        of[i] = -1;
}

int plait_slots_assign(const struct plait_schedule *s,
                       const struct plait_slot_use *use,
                       struct plait_slots *slots)
{
    int m = s->microbatches, k;
    bool *taken = calloc((size_t)s->chunks * m, sizeof(*taken));

    if (!taken)
        return -1;
    slots->n = 0;
    clear_numbers(s, slots->of);
    for (int i = 0; i < s->nactions; i++) {
        const struct plait_action *a = &s->actions[i];
        int *at = &slots->of[a->chunk * m + a->microbatch];
        bool *group = taken + (use->shared ? 0 : a->chunk * m);

        if (a->kind == use->first) {
            for (k = 0; group[k]; k++)
                ;
            *at = k;
            group[k] = true;
            if (k >= slots->n)
                slots->n = k + 1;
        } else if ((a->kind == use->last || a->kind == use->other) &&
                   *at >= 0) {
            group[*at] = false;
        }
    }
    free(taken);
    return 0;
}

/* Remove the numbers that no action uses. */
static void close_gaps(struct plait_slots *slots, int count)
{
    int *of = slots->of;

    for (int k = 0; k < slots->n;) {
        bool used = false;

        for (int i = 0; i < count; i++)
            used = used || of[i] == k;
        if (used) {
            k++;
            continue;
        }
        for (int i = 0; i < count; i++)
            of[i] -= of[i] > k;
        slots->n--;
    }
}

void plait_slots_follow(const struct plait_schedule *s,
                        enum plait_action_kind kind,
                        const struct plait_slots *slots, int most,
                        struct plait_slots *buffers)
{
    int m = s->microbatches, n = slots->n, turns = n < most ? most / n : 1;

    clear_numbers(s, buffers->of);
    for (int i = 0; i < s->nactions; i++) {
        const struct plait_action *a = &s->actions[i];
        int at = a->chunk * m + a->microbatch;

        if (a->kind == kind)
            buffers->of[at] =
                (slots->of[at] + a->microbatch / n % turns * n) % most;
    }
    buffers->n = most;
    close_gaps(buffers, s->chunks * m);
}
