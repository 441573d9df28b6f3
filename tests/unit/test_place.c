/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/plan/cost_order.h"
#include "topology/plan/plan.h"

/* A random cluster: names, leaves and tasks of its nodes. */
struct cluster {
    int nnodes;
    char (*text)[16];
    const char **names;
    int *tasks;
    struct plait_fabric *fabric;
    struct plait_plan_request request;
};

static uint32_t state;

static int roll(int n)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)n);
}

/* leaf_of[i] per node, leaves spread over `spines` spines and one core. */
static void make(struct cluster *c, int nnodes, const int *leaf_of, int leaves,
                 int spines)
{
    char *conf = malloc((size_t)nnodes * 40 + (size_t)leaves * 60 + 4096);
    char *p = conf;
    struct plait_error err;

    memset(c, 0, sizeof(*c));
    c->nnodes = nnodes;
    c->text = calloc((size_t)nnodes, sizeof(*c->text));
    c->names = calloc((size_t)nnodes, sizeof(*c->names));
    c->tasks = calloc((size_t)nnodes, sizeof(*c->tasks));
    for (int i = 0; i < nnodes; i++) {
        snprintf(c->text[i], sizeof(c->text[i]), "n%d", i);
        c->names[i] = c->text[i];
    }
    for (int l = 0; l < leaves; l++) {
        int n = 0;

        for (int i = 0; i < nnodes; i++)
            if (leaf_of[i] == l)
                p += sprintf(p, "%sn%d", n++ ? "," : "", i);
        if (!n) /* a leaf without nodes of this job */
            p += sprintf(p, "x%d", l);
        p += sprintf(p, "\n");
    }
    /* write the names first, then the lines around them */
    {
        char *lines = malloc((size_t)(p - conf) + (size_t)leaves * 60 + 4096);
        char *q = lines, *names = conf;

        for (int l = 0; l < leaves; l++) {
            char *end = strchr(names, '\n');

            *end = '\0';
            q += sprintf(q, "SwitchName=l%d Nodes=%s\n", l, names);
            names = end + 1;
        }
        for (int s = 0; s < spines; s++) {
            int first = s * leaves / spines;
            int last = (s + 1) * leaves / spines - 1;

            if (last >= first)
                q += sprintf(q, "SwitchName=s%d Switches=l[%d-%d]\n", s, first,
                             last);
        }
        if (spines > 1)
            q += sprintf(q, "SwitchName=core Switches=s[0-%d]\n", spines - 1);
        c->fabric = plait_fabric_parse("F", lines, (size_t)(q - lines), &err);
        if (!c->fabric)
            diag("%s", err.text);
        free(lines);
    }
    free(conf);
    plait_layout_init(&c->request.layout);
    c->request.nnodes = nnodes;
    c->request.nodes = c->names;
    c->request.tasks = c->tasks;
    c->request.fabric = c->fabric;
}

static void clear(struct cluster *c)
{
    plait_fabric_destroy(c->fabric);
    free(c->text);
    free(c->names);
    free(c->tasks);
}

/* --- against exhaustive search --- */

static double best_of(struct plait_orders *orders, int *order, int n, int at)
{
    struct plait_cost cost;
    double best = INFINITY;

    if (at == n)
        return plait_orders_cost(orders, order, &cost);
    for (int i = at; i < n; i++) {
        int t = order[at];
        double found;

        order[at] = order[i];
        order[i] = t;
        found = best_of(orders, order, n, at + 1);
        best = found < best ? found : best;
        order[i] = order[at];
        order[at] = t;
    }
    return best;
}

/* A random cluster of 3 to 7 nodes on 2 to 4 leaves, and a layout for it; every
 * fifth cluster has uneven tasks. */
static void random_cluster(struct cluster *c, int number)
{
    int uneven = number % 5 == 4;
    int nnodes = uneven ? 3 + roll(3) : 3 + roll(5), leaves = 2 + roll(3);
    int leaf_of[8] = {0}, per_node = 1 << (1 + roll(3)), world = 0, pp;

    for (int i = 0; i < nnodes; i++)
        leaf_of[i] = roll(leaves);
    make(c, nnodes, leaf_of, leaves, 1 + roll(2));
    for (int i = 0; i < nnodes; i++) {
        c->tasks[i] = uneven ? per_node * (1 + roll(2)) : per_node;
        world += c->tasks[i];
    }
    c->request.layout.size[PLAIT_TP] = 1 << roll(3);
    if (c->request.layout.size[PLAIT_TP] > per_node)
        c->request.layout.size[PLAIT_TP] = per_node;
    world /= c->request.layout.size[PLAIT_TP];
    pp = 1 + roll(world);
    while (world % pp)
        pp--;
    c->request.layout.size[PLAIT_PP] = pp;
    if (world / pp % 2 == 0 && roll(3) == 0)
        c->request.layout.size[PLAIT_CP] = 2;
    c->request.layout.size[PLAIT_DP] = PLAIT_AUTO;
}

static void test_exhaustive(void)
{
    int equal = 0, near = 0, worse = 0, bound = 0, cases = 200;

    state = 1;
    for (int k = 0; k < cases; k++) {
        struct plait_cost cost, linear;
        struct plait_orders *orders;
        struct plait_plan *plan;
        struct plait_error err = {""};
        struct cluster c;
        int order[8];
        double best, low;

        random_cluster(&c, k);
        plan = plait_plan_create(&c.request, &err);
        if (!plan) {
            diag("%s", err.text);
            clear(&c);
            continue;
        }
        orders = plait_orders_create(&c.request, &plan->layout);
        for (int i = 0; i < c.nnodes; i++)
            order[i] = i;
        best = best_of(orders, order, c.nnodes, 0);
        plait_cost_plan(&c.request, plan, &cost, &linear, &low);
        equal += cost.step <= best * (1 + 1e-9);
        near += cost.step <= best * 1.02;
        worse += cost.step > linear.step;
        bound += low <= best * (1 + 1e-9);
        plait_orders_destroy(orders);
        plait_plan_destroy(plan);
        clear(&c);
    }
    ok(equal >= cases * 95 / 100, "%d of %d equal exhaustive search", equal,
       cases);
    ok(near == cases, "%d of %d within 2 %% of it", near, cases);
    ok(worse == 0, "none is worse than linear");
    ok(bound == cases, "the bound holds in %d of %d", bound, cases);
}

/* --- shuffled orders --- */

static void shuffled(struct cluster *c, int nnodes, int per_leaf)
{
    int *leaf_of = calloc((size_t)nnodes, sizeof(*leaf_of));
    int leaves = (nnodes + per_leaf - 1) / per_leaf;

    for (int i = 0; i < nnodes; i++)
        leaf_of[i] = i / per_leaf;
    for (int i = nnodes - 1; i > 0; i--) {
        int k = roll(i + 1), t = leaf_of[i];

        leaf_of[i] = leaf_of[k];
        leaf_of[k] = t;
    }
    make(c, nnodes, leaf_of, leaves, leaves >= 8 ? leaves / 8 : 1);
    for (int i = 0; i < nnodes; i++)
        c->tasks[i] = 8;
    free(leaf_of);
}

static void test_shuffled(int nnodes, int per_leaf, int pp)
{
    struct plait_cost cost, linear;
    struct plait_plan *plan;
    struct cluster c;
    double bound, gain;

    state = (uint32_t)nnodes;
    shuffled(&c, nnodes, per_leaf);
    c.request.layout.size[PLAIT_TP] = 8;
    c.request.layout.size[PLAIT_PP] = pp;
    c.request.layout.size[PLAIT_DP] = PLAIT_AUTO;
    plan = plait_plan_create(&c.request, NULL);
    if (!plan) {
        ok(0, "%d nodes are planned", nnodes);
        clear(&c);
        return;
    }
    plait_cost_plan(&c.request, plan, &cost, &linear, &bound);
    gain = (linear.axis[PLAIT_DP] + linear.axis[PLAIT_PP]) /
           (cost.axis[PLAIT_DP] + cost.axis[PLAIT_PP]);
    ok(gain >= 1.3 && cost.step <= linear.step,
       "%d nodes, %d a leaf, pp %d: %.2f x less dp + pp time, %.0f %% above "
       "the bound",
       nnodes, per_leaf, pp, gain, 100 * (cost.step / bound - 1));
    plait_plan_destroy(plan);
    clear(&c);
}

static void test_in_order(void)
{
    int leaf_of[64], stays = 1;
    struct plait_plan *plan;
    struct cluster c;

    for (int i = 0; i < 64; i++)
        leaf_of[i] = i / 16;
    make(&c, 64, leaf_of, 4, 1);
    for (int i = 0; i < 64; i++)
        c.tasks[i] = 8;
    c.request.layout.size[PLAIT_TP] = 8;
    c.request.layout.size[PLAIT_DP] = PLAIT_AUTO;
    plan = plait_plan_create(&c.request, NULL);
    for (int i = 0; i < 64; i++)
        stays &= plan && plan->node_rank[i] == i;
    ok(stays, "a list that is in order stays as it is");
    plait_plan_destroy(plan);
    clear(&c);
}

/* --- tensor parallelism across the nodes of a block --- */

static void test_blocks(void)
{
    static const char conf[] = "BlockName=b0 Nodes=n[0,2,4,6]\n"
                               "BlockName=b1 Nodes=n[1,3,5,7]\n"
                               "BlockSizes=4\n";
    struct plait_error err = {""};
    struct plait_plan *plan;
    struct cluster c;
    int leaf_of[8] = {0}, whole = 1;

    make(&c, 8, leaf_of, 1, 1);
    plait_fabric_destroy(c.fabric);
    c.request.fabric = c.fabric =
        plait_fabric_parse("F", conf, strlen(conf), NULL);
    for (int i = 0; i < 8; i++)
        c.tasks[i] = 4;
    c.request.layout.size[PLAIT_TP] = 16;
    c.request.layout.size[PLAIT_DP] = PLAIT_AUTO;
    plan = plait_plan_create(&c.request, &err);
    for (int i = 0; i < 8; i++)
        whole &= plan && plan->node_rank[i] / 4 == plan->node_rank[i % 2] / 4;
    if (!ok(whole, "tp 16 takes the four nodes of a block"))
        diag("%s", err.text);
    plait_plan_destroy(plan);
    c.request.layout.size[PLAIT_TP] = 32;
    plan = plait_plan_create(&c.request, &err);
    ok(!plan && strncmp(err.text, "--tp=32 takes 8 nodes of one block, but ",
                        40) == 0,
       "tp 32 is more than a block: %s", err.text);
    plait_plan_destroy(plan);
    clear(&c);
}

/* Of racks that lack a node, those are named that a group cannot fill, wherever
 * their nodes stand in the list. */
static void test_uneven_blocks(void)
{
    static const char conf[] = "BlockName=b0 Nodes=n[0-3]\n"
                               "BlockName=b1 Nodes=n[4-6]\n"
                               "BlockName=b2 Nodes=n[7-10]\n"
                               "BlockName=b3 Nodes=n[11]\n";
    static const char want[] =
        "--tp=8 takes 2 nodes of one block, but there are 3 nodes of block b1 "
        "(n[4-6]), 1 node of block b3 (n11), which 2 does not divide; ask for "
        "whole blocks (--segment=2) or a smaller --tp";
    struct plait_error err = {""};
    struct plait_plan *plan;
    struct cluster c;
    int leaf_of[12] = {0};

    make(&c, 12, leaf_of, 1, 1);
    plait_fabric_destroy(c.fabric);
    c.request.fabric = c.fabric =
        plait_fabric_parse("F", conf, strlen(conf), NULL);
    for (int i = 0; i < 12; i++)
        c.tasks[i] = 4;
    c.request.layout.size[PLAIT_TP] = 8;
    c.request.layout.size[PLAIT_DP] = PLAIT_AUTO;
    plan = plait_plan_create(&c.request, &err);
    if (!ok(!plan && strcmp(err.text, want) == 0,
            "the uneven blocks are named"))
        diag("%s", err.text);
    plait_plan_destroy(plan);
    clear(&c);
}

int main(void)
{
    test_exhaustive();
    for (int n = 16; n <= 512; n *= 2)
        test_shuffled(n, n > 64 ? 16 : 4, 4);
    test_shuffled(96, 16, 1);
    test_shuffled(90, 13, 3);
    test_in_order();
    test_blocks();
    test_uneven_blocks();
    return done_testing();
}
