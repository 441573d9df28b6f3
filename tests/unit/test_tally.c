/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/tally.h"
#include "tap.h"

/* The hash that ranks of a group keep of what they have started. */

static struct plait_tally tally_of(const char *calls)
{
    struct plait_tally t = {0, 0};

    for (; *calls; calls++)
        plait_tally_add(&t, (uint64_t)*calls);
    return t;
}

static bool same(struct plait_tally a, struct plait_tally b)
{
    return a.n == b.n && a.hash == b.hash;
}

static double sum(struct plait_tally odd, struct plait_tally rest, int at,
                  int size)
{
    double total = 0;

    for (int r = 0; r < size; r++)
        total += plait_tally_share(r == at ? odd : rest, r, size);
    return total;
}

int main(void)
{
    struct plait_tally zero = {0, 0}, one = zero, none = zero, got;
    int bad = 0;

    ok(!same(tally_of("ab"), tally_of("ba")), "the order counts");
    ok(!same(tally_of("ab"), tally_of("abb")), "so does the number");
    plait_tally_add(&none, 0);
    ok(none.hash != 0, "and what is 0");
    plait_tally_add(&one, 1);
    ok(!same(one, none), "one bit is a difference");

    got = plait_tally_since(tally_of("abc"), tally_of("abcdefg"));
    ok(same(got, tally_of("defg")), "what came after");
    ok(same(plait_tally_join(tally_of("abc"), got), tally_of("abcdefg")),
       "is put in again");
    ok(same(plait_tally_join(tally_of("xyz"), got), tally_of("xyzdefg")),
       "... elsewhere");
    ok(same(plait_tally_since(got, got), zero), "nothing came after itself");

    for (int size = 1; size < 200; size++)
        bad += sum(got, got, 0, size) != 0;
    ok(bad == 0, "equal tallies sum up to 0");
    for (int size = 2; size < 200; size++)
        for (int at = 0; at < size; at++)
            bad += sum(one, got, at, size) == 0;
    ok(bad == 0, "one that differs shows, wherever it is");
    ok(sum(got, got, 0, 65536) == 0 && sum(one, got, 77, 65536) != 0,
       "among 65,536 ranks too");
    return done_testing();
}
