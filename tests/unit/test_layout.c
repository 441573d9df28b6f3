/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/layout/layout.h"

static void make(struct plait_layout *l, int tp, int cp, int ep, int dp, int pp)
{
    plait_layout_init(l);
    l->size[PLAIT_TP] = tp;
    l->size[PLAIT_CP] = cp;
    l->size[PLAIT_EP] = ep;
    l->size[PLAIT_DP] = dp;
    l->size[PLAIT_PP] = pp;
}

/* Calls `visit` with every permutation of the axes; returns how many failed. */
static int each_order(struct plait_layout *l, int at,
                      int (*visit)(struct plait_layout *))
{
    int bad = 0;

    if (at == PLAIT_NAXES)
        return visit(l);
    for (int i = at; i < PLAIT_NAXES; i++) {
        enum plait_axis t = l->order[at];

        l->order[at] = l->order[i];
        l->order[i] = t;
        bad += each_order(l, at + 1, visit);
        l->order[i] = l->order[at];
        l->order[at] = t;
    }
    return bad;
}

static int round_trip(struct plait_layout *l)
{
    enum plait_axis order[PLAIT_NAXES];
    int world = plait_layout_world(l), bad = 0;
    char text[16];

    for (int rank = 0; rank < world; rank++) {
        struct plait_coord c;

        plait_layout_coord(l, rank, &c);
        for (int i = 0; i < PLAIT_NAXES; i++)
            bad += c.at[i] < 0 || c.at[i] >= l->size[i];
        bad += plait_layout_rank(l, &c) != rank;
    }
    plait_layout_format_order(l, text);
    bad += plait_layout_parse_order(text, order, NULL) != 0;
    bad += memcmp(order, l->order, sizeof(order)) != 0;
    return bad;
}

/* The groups of an axis partition the world, their members ascend, and every
 * member gets the same group. */
static int partition(struct plait_layout *l)
{
    int world = plait_layout_world(l), bad = 0;
    int *a = calloc((size_t)world * 2, sizeof(*a)), *b = a + world;

    for (int g = 0; g < PLAIT_NGROUPS; g++)
        for (int rank = 0; rank < world; rank++) {
            int n = plait_layout_group(l, (enum plait_group)g, rank, a);
            bool in = false;

            bad += plait_layout_group(l, (enum plait_group)g, rank, NULL) != n;
            for (int k = 0; k < n; k++) {
                in |= a[k] == rank;
                bad += k && a[k] <= a[k - 1];
                bad +=
                    plait_layout_group(l, (enum plait_group)g, a[k], b) != n ||
                    memcmp(a, b, (size_t)n * sizeof(*a)) != 0;
            }
            bad += !in;
        }
    free(a);
    return bad;
}

static int axis_groups(struct plait_layout *l)
{
    int world = plait_layout_world(l), bad = 0;
    int *m = calloc((size_t)world, sizeof(*m));

    for (int g = 0; g < PLAIT_NAXES; g++)
        for (int rank = 0; rank < world; rank++) {
            int n = plait_layout_group(l, (enum plait_group)g, rank, m);

            bad += n != l->size[g];
            for (int k = 0; k < n; k++) {
                struct plait_coord c;

                plait_layout_coord(l, m[k], &c);
                bad += c.at[g] != k;
            }
        }
    free(m);
    return bad;
}

/* Where every rank has all experts, those that sum an expert's gradients are
 * those that sum the others'. */
static int same_experts(struct plait_layout *l)
{
    int world = plait_layout_world(l), bad = 0, n;
    int *dense = calloc((size_t)world, sizeof(*dense));
    int *expert = calloc((size_t)world, sizeof(*expert));

    for (int rank = 0; rank < world; rank++) {
        n = plait_layout_group(l, PLAIT_GROUP_DP_CP, rank, dense);
        bad += plait_layout_group(l, PLAIT_GROUP_EXPERT_DP, rank, expert) != n;
        bad += memcmp(dense, expert, (size_t)n * sizeof(*dense)) != 0;
    }
    free(dense);
    free(expert);
    return bad;
}

static void test_orders(void)
{
    struct plait_layout l;

    make(&l, 2, 3, 1, 4, 5);
    ok(each_order(&l, 0, round_trip) == 0,
       "rank -> coordinate -> rank in all 120 orders");
    make(&l, 2, 2, 1, 2, 3);
    ok(each_order(&l, 0, partition) == 0, "groups partition, in all orders");
    ok(each_order(&l, 0, axis_groups) == 0,
       "member k of an axis group has coordinate k");
    ok(each_order(&l, 0, same_experts) == 0,
       "with ep=1 experts are summed where the rest is, in all orders");
}

/* Megatron with tp 2, cp 2, ep 4, dp 4, pp 2: 32 ranks. The dense digits are
 * tp 2, cp 2, dp 4, pp 2; the expert ones tp 2, ep 4, dp 2, pp 2. */
static void test_experts(void)
{
    static const int want_ep[] = {1, 3, 5, 7}, want_edp[] = {5, 13};
    static const int want_dpcp[] = {1, 3, 5, 7, 9, 11, 13, 15};
    struct plait_layout l;
    struct plait_coord c;
    int m[32], n;

    make(&l, 2, 2, 4, PLAIT_AUTO, 2);
    ok(plait_layout_resolve(&l, 32, NULL) == 0 && l.size[PLAIT_DP] == 4,
       "dp is inferred beside ep");
    plait_layout_coord(&l, 13, &c);
    ok(c.at[PLAIT_TP] == 1 && c.at[PLAIT_CP] == 0 && c.at[PLAIT_DP] == 3 &&
           c.at[PLAIT_PP] == 0 && c.at[PLAIT_EP] == 2,
       "coordinate of rank 13");
    n = plait_layout_group(&l, PLAIT_GROUP_EP, 5, m);
    ok(n == 4 && memcmp(m, want_ep, sizeof(want_ep)) == 0, "ep group");
    n = plait_layout_group(&l, PLAIT_GROUP_EXPERT_DP, 13, m);
    ok(n == 2 && memcmp(m, want_edp, sizeof(want_edp)) == 0, "expert dp group");
    n = plait_layout_group(&l, PLAIT_GROUP_DP_CP, 7, m);
    ok(n == 8 && memcmp(m, want_dpcp, sizeof(want_dpcp)) == 0, "dp x cp group");
    ok(partition(&l) == 0 && round_trip(&l) == 0, "partition and round trip");
    plait_layout_parse_order("pp-ep-dp-cp-tp", l.order, NULL);
    ok(plait_layout_resolve(&l, 32, NULL) == 0 && partition(&l) == 0 &&
           axis_groups(&l) == 0,
       "experts in another order");
}

static void refuse(struct plait_layout *l, int world, const char *want)
{
    struct plait_layout before = *l;
    struct plait_error err = {""};

    if (!ok(plait_layout_resolve(l, world, &err) == -1 &&
                strcmp(err.text, want) == 0 &&
                memcmp(l, &before, sizeof(before)) == 0,
            "refuses: %s", want))
        diag("got: %s", err.text);
}

static void test_refusals(void)
{
    struct plait_layout l;
    struct plait_error err;

    make(&l, 3, 1, 1, PLAIT_AUTO, 1);
    refuse(
        &l, 16,
        "16 tasks are not divisible by --tp=3; --tp=2 --dp=8 or --tp=4 --dp=4 "
        "would fit");
    make(&l, 3, 1, 1, PLAIT_AUTO, 1);
    ok(plait_layout_resolve_on(&l, 8, 2, &err) < 0 &&
           strstr(err.text,
                  "; --tp=2 --dp=4 or --tp=2 --dp=2 --pp=2 would fit"),
       "on nodes of 2 tasks: %s", err.text);
    make(&l, 2, 1, 1, 4, 1);
    refuse(&l, 16,
           "--tp=2 --dp=4 do not make 16 tasks; --tp=2 --dp=8 or --tp=2 "
           "--dp=4 --pp=2 would fit");
    make(&l, 2, 1, 1, 2, 2);
    refuse(&l, 7,
           "--tp=2 --dp=2 --pp=2 do not make 7 tasks; --dp=7 or "
           "--pp=7 would fit");
    make(&l, 2, 1, 1, PLAIT_AUTO, PLAIT_AUTO);
    refuse(&l, 8,
           "only one of --tp, --cp, --dp and --pp can be left to be "
           "inferred, unless --model=FILE says what they are for");
    make(&l, 1, 2, 3, 4, 1);
    refuse(&l, 8,
           "cp * dp = 2 * 4 is not divisible by --ep=3; --ep=2 would fit");
    make(&l, 2, 2, 2, 2, 1);
    plait_layout_parse_order("cp-tp-ep-dp-pp", l.order, NULL);
    refuse(&l, 8,
           "with --ep=2, cp, ep and dp must be neighbours in --rank-order");
    make(&l, 1048576, 1048576, 1, 1048576, 1048576);
    ok(plait_layout_resolve(&l, 1048576, NULL) == -1, "no overflow");
    make(&l, 1, 1, 1, 1, 1);
    refuse(&l, 0, "0 tasks: must be from 1 to 1048576");
}

static void test_parse(void)
{
    static const char *const bad[] = {
        "",   "0",  "-1",          "abc",     "4x",  "+4",
        " 4", "4 ", "99999999999", "1048577", "1e3", "Auto"};
    static const char *const bad_orders[] = {"",
                                             "tp",
                                             "tp-cp-ep-dp",
                                             "tp-cp-ep-dp-dp",
                                             "tp-cp-ep-dp-pp-",
                                             "tp-cp-ep-dp-xx",
                                             "tp--cp-ep-dp-pp",
                                             "tpcpepdppp"};
    enum plait_axis order[PLAIT_NAXES] = {PLAIT_PP};
    struct plait_error err;
    int size = 77;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ok(plait_layout_parse_size("--tp", bad[i], &size, &err) == -1 &&
               size == 77,
           "size \"%s\" is refused", bad[i]);
    plait_layout_parse_size("--tp", "4x", &size, &err);
    ok(strcmp(err.text, "--tp=4x must be a whole number from 1 to 1048576, or "
                        "\"auto\"") == 0,
       "the error names the flag");
    ok(plait_layout_parse_size("--tp", "auto", &size, &err) == 0 &&
           size == PLAIT_AUTO,
       "auto");
    ok(plait_layout_parse_size("--tp", "1048576", &size, &err) == 0 &&
           size == 1048576,
       "the largest size");
    for (size_t i = 0; i < sizeof(bad_orders) / sizeof(bad_orders[0]); i++)
        ok(plait_layout_parse_order(bad_orders[i], order, &err) == -1 &&
               order[0] == PLAIT_PP,
           "order \"%s\" is refused", bad_orders[i]);
}

/* --rank-order TEXT with these sizes for 8 tasks: the order, or the error. */
static void order_is(const char *text, int tp, int cp, int pp, const char *want)
{
    struct plait_error err = {""};
    struct plait_layout l;
    char order[16] = "";
    int is_free = -1;

    make(&l, tp, cp, 1, PLAIT_AUTO, pp);
    if (plait_layout_parse_rank_order(text, &l, &is_free, &err) == 0 &&
        plait_layout_resolve(&l, 8, &err) == 0)
        plait_layout_format_order(&l, order);
    if (!ok(strcmp(*order ? order : err.text, want) == 0, "--rank-order=%s: %s",
            text, want))
        diag("got: %s%s", order, err.text);
}

static void test_rank_order(void)
{
    static const char must[] =
        "must have each of tp, cp, ep, dp and pp once, as in tp-cp-ep-dp-pp; "
        "those of size 1 may be left out";
    static const char *const bad[] = {
        "",      "tp-",   "-tp",   "tp--dp", "tp-tp",
        "tp-xp", "TP-DP", "tp dp", "Auto",   "tp-dp-pp-cp-ep-tp"};
    struct plait_layout l;
    char text[200];

    order_is("pp-dp-cp-ep-tp", 2, 1, 2, "pp-dp-cp-ep-tp");
    order_is("pp-dp-tp", 2, 1, 2, "pp-dp-tp-cp-ep");
    order_is("dp", 1, 1, 1, "dp-tp-cp-ep-pp");
    order_is("tp-pp", 2, 1, 4, "tp-pp-cp-ep-dp");
    order_is("tp-pp", 2, 1, 2,
             "--rank-order leaves out dp, whose size is 2; only axes of size 1 "
             "may be left out");
    order_is("tp-dp-pp", 2, 2, 2,
             "--rank-order leaves out cp, whose size is 2; only axes of size 1 "
             "may be left out");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "rank order \"%s\" %s", bad[i], must);
        order_is(bad[i], 2, 1, 2, text);
    }
    make(&l, 3, 1, 1, PLAIT_AUTO, 1);
    refuse(&l, 1, "1 task is not divisible by --tp=3; --dp=1 would fit");
    make(&l, 2, 1, 1, 1, 1);
    refuse(&l, 1, "--tp=2 does not make 1 task; --dp=1 would fit");
}

static void test_keeps_tp(void)
{
    struct plait_layout l;

    plait_layout_init(&l);
    l.size[PLAIT_TP] = 2;
    l.size[PLAIT_PP] = 2;
    l.size[PLAIT_DP] = 2;
    ok(plait_layout_keeps_tp(&l, 0, 2) && plait_layout_keeps_tp(&l, 6, 2) &&
           !plait_layout_keeps_tp(&l, 0, 3) && !plait_layout_keeps_tp(&l, 1, 2),
       "tp first: pairs of neighbours");
    plait_layout_parse_order("pp-dp-cp-ep-tp", l.order, NULL);
    ok(!plait_layout_keeps_tp(&l, 0, 4) && !plait_layout_keeps_tp(&l, 4, 4) &&
           plait_layout_keeps_tp(&l, 0, 8),
       "tp last: the first with the fifth");
}

int main(void)
{
    test_orders();
    test_experts();
    test_refusals();
    test_parse();
    test_rank_order();
    test_keeps_tp();
    return done_testing();
}
