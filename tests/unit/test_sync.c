/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tap.h"
#include "topology/job/sync.h"

/* When replicas train apart, and when they meet. */

static void check_each(void)
{
    struct plait_sync_config s = {.alpha = -1};

    ok(!plait_sync_parts(&s) && !plait_sync_apart(&s, 0) &&
           !plait_sync_due(&s, 0, 1, 10) && plait_sync_share(&s, 10) == 1 &&
           plait_sync_vectors(&s) == 0,
       "each: one model");
    s.mode = PLAIT_SYNC_LOCAL;
    s.steps = 1;
    ok(!plait_sync_parts(&s) && plait_sync_share(&s, 10) == 1,
       "local with H = 1 is each");
    s.mode = PLAIT_SYNC_SMA;
    ok(plait_sync_parts(&s), "sma with H = 1 is not");
}

/* Counts step by step, against the share in closed form. */
static void check_share(enum plait_sync_mode mode, int64_t h, int64_t from,
                        int64_t steps)
{
    struct plait_sync_config s = {
        .mode = mode, .steps = h, .from = from, .alpha = -1};
    int64_t sums = 0, step, last = 0, longest = 0;

    for (step = 0; step < steps; step++) {
        if (!plait_sync_apart(&s, step)) {
            sums++;
            last = step + 1;
        }
        if (plait_sync_due(&s, 0, step + 1, steps)) {
            sums++;
            longest = step + 1 - last > longest ? step + 1 - last : longest;
            last = step + 1;
        }
    }
    ok(last == steps && longest <= plait_sync_steps(&s),
       "%s, H %d from %d of %d: H steps apart at most, one model at the end",
       plait_sync_mode_names[mode], (int)h, (int)from, (int)steps);
    ok(fabs(plait_sync_share(&s, steps) - (double)sums / steps) < 1e-12,
       "... with %d all-reduces", (int)sums);
}

/* With H = 6 and three fragments, number 0 meets after steps 6, 12, ..., 1
 * after 2, 8, .. and 2 after 4, 10, ..; all after the last. */
static void check_fragments(void)
{
    struct plait_sync_config s = {
        .mode = PLAIT_SYNC_DILOCO, .steps = 6, .fragments = 3};
    int wrong = 0, meetings = 0;

    for (int64_t done = 1; done <= 14; done++)
        for (int f = 0; f < 3; f++) {
            bool due = plait_sync_due(&s, f, done, 14);
            bool planned = done % 6 == 2 * f;

            wrong += due != (planned || done == 14);
            meetings += due;
        }
    ok(wrong == 0 && meetings == 2 + 1 + 3 + 2 + 1,
       "fragments meet in turn: %d meetings", meetings);
    ok(fabs(plait_sync_share(&s, 14) - meetings / 3.0 / 14) < 1e-12,
       "which are %.4f of the model a step", plait_sync_share(&s, 14));
    s.fragments = 1;
    ok(plait_sync_fragments(&s) == 1 && !plait_sync_due(&s, 0, 2, 14) &&
           plait_sync_due(&s, 0, 6, 14),
       "one fragment is the whole model");
}

/* What is sent, as the bytes of a weight in an all-reduce, which sends 2
 * (n - 1) / n of them. Of 4 replicas each receives 3 bytes in fp8: 3/2 of 2
 * bytes. Of 3 it receives 4 bytes in bf16: 4/3 of 3; of 8, 7 in fp8: 7/4 of 4,
 * as in fp32. */
static void check_sent(void)
{
    struct plait_sync_config s = {.mode = PLAIT_SYNC_DILOCO};
    int wrong = plait_sync_sent(&s, 7) != 4;

    s.gradients = PLAIT_SYNC_FP8;
    wrong += plait_sync_sent(&s, 4) != 2 || plait_sync_sent(&s, 8) != 4;
    s.gradients = PLAIT_SYNC_BF16;
    wrong += plait_sync_sent(&s, 3) != 3 || plait_sync_sent(&s, 4) != 4;
    ok(wrong == 0 && plait_sync_room(&s, 1e9) == 1 << 22 &&
           plait_sync_room(&s, 5) == 5,
       "codes are gathered, some at a time");
    s.delay = 1;
    ok(plait_sync_room(&s, 1e9) == 1e9, "but with a delay all are kept");
}

/* With H = 6, three fragments and a delay of 3, number 0 sends after steps 6
 * and 12, 1 after 2, 8 and 14, 2 after 4, 10 and 16; all meet after the last.
 * What would arrive with or after the last step is not sent. */
static void check_delay(int64_t steps, const int64_t *sends, int n)
{
    struct plait_sync_config s = {
        .mode = PLAIT_SYNC_DILOCO, .steps = 6, .fragments = 3, .delay = 3};
    int wrong = 0, found = 0;

    for (int64_t done = 1; done < steps; done++)
        for (int f = 0; f < 3; f++)
            if (plait_sync_due(&s, f, done, steps)) {
                wrong +=
                    found >= n || sends[found] != done || f != done % 6 / 2;
                found++;
            }
    for (int f = 0; f < 3; f++)
        wrong += !plait_sync_due(&s, f, steps, steps);
    ok(wrong == 0 && found == n, "a delay of 3 in %d steps: %d sent",
       (int)steps, found);
    ok(fabs(plait_sync_share(&s, steps) - (n + 3) / 3.0 / (double)steps) <
           1e-12,
       "... which are counted");
}

int main(void)
{
    check_delay(15, (int64_t[]){2, 4, 6, 8, 10}, 5);
    check_delay(16, (int64_t[]){2, 4, 6, 8, 10, 12}, 6);
    check_delay(3, NULL, 0);
    ok(plait_sync_vectors(&(struct plait_sync_config){.mode = PLAIT_SYNC_DILOCO,
                                                      .delay = 1}) == 3,
       "what is under way is a vector more");
    check_sent();
    check_fragments();
    check_each();
    check_share(PLAIT_SYNC_LOCAL, 4, 0, 20);
    check_share(PLAIT_SYNC_LOCAL, 4, 0, 22);
    check_share(PLAIT_SYNC_POST_LOCAL, 16, 7, 7 + 32);
    check_share(PLAIT_SYNC_POST_LOCAL, 16, 99, 100);
    check_share(PLAIT_SYNC_SMA, 1, 0, 9);
    check_share(PLAIT_SYNC_SMA, 2, 0, 9);
    check_share(PLAIT_SYNC_DILOCO, 0, 0, 1234);
    return done_testing();
}
