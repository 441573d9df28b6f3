/* SPDX-License-Identifier: Apache-2.0 */
/* Which buffers micro-batches send from: those of a slot use the same few ones,
 * so that few graphs are recorded. */
#include <stdlib.h>

#include "runtime/parallel/slots.h"
#include "tap.h"

enum { MOST = 4, CHUNKS = 4, MICROBATCHES = 24, STAGES = 8 };

static struct plait_schedule *list(enum plait_schedule_kind kind, int p, int v,
                                   int rank)
{
    struct plait_error err;

    return plait_schedule_create(
        &(struct plait_schedule_form){kind, p, v, MICROBATCHES}, rank, &err);
}

/* Whether all numbers below n are used and none above, for actions of that kind
 * only. */
static bool is_dense(const struct plait_schedule *s,
                     enum plait_action_kind kind,
                     const struct plait_slots *buffers)
{
    const int *of = buffers->of, n = buffers->n;
    bool used[MOST] = {false}, all = n <= MOST;
    int count = 0, sends = 0;

    for (int i = 0; i < s->chunks * MICROBATCHES; i++) {
        if (of[i] < 0)
            continue;
        if (of[i] >= n)
            return false;
        used[of[i]] = true;
        count++;
    }
    for (int i = 0; i < s->nactions; i++)
        sends += s->actions[i].kind == kind;
    for (int i = 0; i < n; i++)
        all = all && used[i];
    return all && count == sends;
}

/* The largest count of different numbers among the micro-batches of one slot of
 * one chunk. */
static int most_met(const struct plait_schedule *s,
                    const struct plait_slots *slots,
                    const struct plait_slots *buffers)
{
    const int *of = buffers->of;
    int most = 0;

    for (int at = 0; at < s->chunks * slots->n; at++) {
        bool met[MOST] = {false};
        int n = 0;

        for (int i = 0; i < MICROBATCHES; i++) {
            int k = at / slots->n * MICROBATCHES + i;

            if (slots->of[k] != at % slots->n || of[k] < 0 || met[of[k]])
                continue;
            met[of[k]] = true;
            n++;
        }
        most = n > most ? n : most;
    }
    return most;
}

static bool follows(const struct plait_schedule *s, enum plait_action_kind kind,
                    const struct plait_slots *slots)
{
    int of[CHUNKS * MICROBATCHES], met;
    struct plait_slots buffers = {.of = of};

    plait_slots_follow(s, kind, slots, MOST, &buffers);
    met = most_met(s, slots, &buffers);
    return is_dense(s, kind, &buffers) &&
           met <= (slots->n < MOST ? MOST / slots->n : 1) &&
           (buffers.n == 0 || slots->n * met >= MOST - 1);
}

static bool try_rank(enum plait_schedule_kind kind, int p, int v, int rank)
{
    struct plait_schedule *s = list(kind, p, v, rank);
    int of[CHUNKS * MICROBATCHES];
    struct plait_slots slots = {.of = of};
    struct plait_slot_use use = {.first = PLAIT_FORWARD,
                                 .last = PLAIT_BACKWARD,
                                 .other = PLAIT_BACKWARD_WEIGHT,
                                 .shared = true};
    bool good = s && plait_slots_assign(s, &use, &slots) == 0 &&
                slots.n == s->peak && follows(s, PLAIT_SEND_FORWARD, &slots) &&
                follows(s, PLAIT_SEND_BACKWARD, &slots);

    plait_schedule_destroy(s);
    return good;
}

int main(void)
{
    static const enum plait_schedule_kind kinds[] = {
        PLAIT_SCHEDULE_GPIPE, PLAIT_SCHEDULE_1F1B, PLAIT_SCHEDULE_INTERLEAVED,
        PLAIT_SCHEDULE_ZB_H1};

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
        for (int p = 2; p <= STAGES; p *= 2) {
            bool chunked = kinds[k] == PLAIT_SCHEDULE_INTERLEAVED, good = true;

            for (int v = chunked ? 2 : 1; v <= (chunked ? CHUNKS : 1); v++)
                for (int rank = 0; rank < p; rank++)
                    good = try_rank(kinds[k], p, v, rank) && good;
            ok(good, "%s, %d stages: a slot meets the same buffers again",
               plait_schedule_names[kinds[k]], p);
        }
    return done_testing();
}
