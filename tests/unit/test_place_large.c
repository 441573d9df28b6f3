/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/plan/cost_order.h"
#include "topology/plan/plan.h"

/* Fabrics too large to try every order: the plan never costs more than Slurm's
 * order or any of many random ones, nor less than its lower bound, and is short
 * when encoded. */

enum { NODES_MOST = 4096 };

struct cluster {
    int n;
    int leaf[NODES_MOST];
    int tasks[NODES_MOST];
    char text[NODES_MOST][16];
    const char *names[NODES_MOST];
    struct plait_fabric *fabric;
    struct plait_plan_request request;
};

static struct cluster c; /* too large for the stack */
static uint32_t state;

static int roll(int n)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)n);
}

static void shuffle(int *list, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = roll(i + 1), t = list[i];

        list[i] = list[k];
        list[k] = t;
    }
}

/* Writes c.leaf as a topology.conf: blocks, or leaves below spines of
 * `per_spine` leaves. */
static void make_fabric(int leaves, int per_spine, int blocks)
{
    size_t room = (size_t)c.n * 10 + (size_t)leaves * 100 + 100;
    char *text = malloc(room), *p = text;
    struct plait_error err = {""};
    int spines = (leaves + per_spine - 1) / per_spine;

    for (int l = 0; l < leaves; l++) {
        p += sprintf(p, "%sName=l%d Nodes=x%d", blocks ? "Block" : "Switch", l,
                     l);
        for (int i = 0; i < c.n; i++)
            if (c.leaf[i] == l)
                p += sprintf(p, ",n%d", i);
        p += sprintf(p, "\n");
    }
    for (int s = 0; s < spines && !blocks; s++)
        p += sprintf(p, "SwitchName=s%d Switches=l[%d-%d]\n", s, s * per_spine,
                     s == spines - 1 ? leaves - 1 : (s + 1) * per_spine - 1);
    if (blocks)
        p += sprintf(p, "BlockSizes=1\n");
    else
        p += sprintf(p, "SwitchName=core Switches=s[0-%d]\n", spines - 1);
    plait_fabric_destroy(c.fabric);
    c.fabric = plait_fabric_parse("F", text, (size_t)(p - text), &err);
    if (!c.fabric)
        diag("%s", err.text);
    free(text);
}

static void make_request(int tp, int cp, int pp)
{
    memset(&c.request, 0, sizeof(c.request));
    for (int i = 0; i < c.n; i++) {
        snprintf(c.text[i], sizeof(c.text[i]), "n%d", i);
        c.names[i] = c.text[i];
    }
    plait_layout_init(&c.request.layout);
    c.request.layout.size[PLAIT_TP] = tp;
    c.request.layout.size[PLAIT_CP] = cp;
    c.request.layout.size[PLAIT_PP] = pp;
    c.request.layout.size[PLAIT_DP] = PLAIT_AUTO;
    c.request.nnodes = c.n;
    c.request.nodes = c.names;
    c.request.tasks = c.tasks;
    c.request.fabric = c.fabric;
}

/* Whether the text decodes to the plan, as a whole and for some nodes alone. */
static int decodes(const struct plait_plan *plan, const char *text)
{
    struct plait_plan *back = plait_plan_decode(text, NULL);
    size_t bytes = (size_t)plan->nnodes * sizeof(int);
    int good = back && back->nnodes == plan->nnodes &&
               memcmp(back->node_rank, plan->node_rank, bytes) == 0 &&
               memcmp(back->first_rank, plan->first_rank, bytes) == 0;

    for (int i = 0; good && i < plan->nnodes; i += 1 + plan->nnodes / 100) {
        struct plait_plan_part part;

        good = plait_plan_decode_part(text, i, &part, NULL) == 0 &&
               part.node_rank == plan->node_rank[i] &&
               part.first_rank == plan->first_rank[i] &&
               part.tasks == plan->tasks[i];
    }
    plait_plan_destroy(back);
    return good;
}

/* --- random clusters --- */

/* 12 to 160 nodes in an order unrelated to the leaves, which have 1 to 24 of
 * them each: two or three levels of switches, or blocks of 18 nodes of four
 * GPUs (NVL72) of which a job has what others left free. */
static void random_cluster(int number)
{
    int blocks = number % 3 == 2, leaves = 0, per_node = blocks ? 4 : 8, world;
    int pp, tp = 1 << roll(blocks ? 3 : 4), uneven = number % 7 == 6;

    c.n = 12 + roll(149);
    for (int i = 0, left = 0; i < c.n; i++, left--) {
        if (left == 0) {
            leaves++;
            left = 1 + roll(blocks ? 18 : 24);
        }
        c.leaf[i] = leaves - 1;
    }
    if (number % 4 != 0)
        shuffle(c.leaf, c.n);
    if (number % 5 == 4)
        roll(c.n); /* keeps the random clusters unchanged */
    world = 0;
    for (int i = 0; i < c.n; i++) {
        c.tasks[i] = uneven && roll(4) == 0 ? 2 * per_node : per_node;
        world += c.tasks[i];
    }
    pp = 1 + roll(16);
    while (world / tp % pp)
        pp--;
    make_fabric(leaves, 1 + roll(6), blocks);
    make_request(tp, world / tp / pp % 2 == 0 && roll(3) == 0 ? 2 : 1, pp);
}

/* The cost of the cheapest of some random orders. */
static double random_orders(const struct plait_plan *plan, int tries)
{
    struct plait_orders *orders =
        plait_orders_create(&c.request, &plan->layout);
    int *order = malloc((size_t)c.n * sizeof(*order));
    struct plait_cost cost;
    double best = -1;

    for (int i = 0; i < c.n; i++)
        order[i] = i;
    for (int t = 0; t < tries; t++) {
        double step;

        shuffle(order, c.n);
        step = plait_orders_cost(orders, order, &cost);
        if (best < 0 || step < best)
            best = step;
    }
    plait_orders_destroy(orders);
    free(order);
    return best;
}

static void test_random(void)
{
    int cases = 40, planned = 0, linear = 0, lucky = 0, bounded = 0;
    int whole = 0, cheaper = 0;

    state = 11;
    for (int k = 0; k < cases; k++) {
        struct plait_cost cost, slurm;
        struct plait_error err = {""};
        struct plait_plan *plan;
        double bound;
        char *text;

        random_cluster(k);
        plan = plait_plan_create(&c.request, &err);
        if (!plan) {
            diag("%d: %s", k, err.text);
            continue;
        }
        planned++;
        plait_cost_plan(&c.request, plan, &cost, &slurm, &bound);
        linear += cost.step <= slurm.step;
        cheaper += cost.step < slurm.step * 0.99;
        lucky += cost.step <= random_orders(plan, 50) * (1 + 1e-9);
        bounded += bound <= cost.step * (1 + 1e-9);
        text = plait_plan_encode(plan);
        whole += text && decodes(plan, text);
        free(text);
        plait_plan_destroy(plan);
    }
    ok(planned == cases, "%d of %d random clusters are planned", planned,
       cases);
    ok(linear == planned, "%d never cost more than Slurm's order; %d less",
       linear, cheaper);
    ok(lucky == planned, "%d never cost more than the best of 50 random ones",
       lucky);
    ok(bounded == planned, "%d never cost less than the bound", bounded);
    ok(whole == planned, "%d come back from their encoding", whole);
}

/* --- the rank order, where it is free --- */

static double ordered_cost(struct plait_layout *layout)
{
    struct plait_cost cost = {.step = -1}, linear;
    struct plait_plan *plan = plait_plan_create(&c.request, NULL);

    if (plan) {
        plait_cost_plan(&c.request, plan, &cost, &linear, NULL);
        *layout = plan->layout;
    }
    plait_plan_destroy(plan);
    return cost.step;
}

static void test_order(void)
{
    int cases = 12, dearer = 0, cheaper = 0, same = 0;

    state = 5;
    for (int k = 0; k < cases; k++) {
        struct plait_layout layout, free_layout, again;
        double given, freed;

        random_cluster(k);
        given = ordered_cost(&layout);
        c.request.order_free = 1;
        freed = ordered_cost(&free_layout);
        same += ordered_cost(&again) == freed &&
                memcmp(&again, &free_layout, sizeof(again)) == 0 &&
                free_layout.order[0] == PLAIT_TP;
        dearer += freed < 0 || freed > given;
        cheaper += freed < given * 0.99;
        if (freed == given &&
            memcmp(&layout, &free_layout, sizeof(layout)) != 0)
            dearer++; /* the usual order should stay if nothing is gained */
    }
    ok(dearer == 0 && cheaper > 0,
       "a free rank order costs less in %d of %d, more in %d", cheaper, cases,
       dearer);
    ok(same == cases, "it begins with tp and is the same twice");
}

/* --- how long a plan of 4,096 nodes is --- */

static void set_leaves(int kind, int leaves)
{
    int order[256];

    for (int i = 0; i < leaves; i++)
        order[i] = i;
    shuffle(order, leaves);
    for (int i = 0, l = 0, left = 32; i < c.n; i++) {
        switch (kind) {
        case 1: /* numbering of leaves and nodes unrelated */
            c.leaf[i] = order[i / 32];
            break;
        case 2: /* a leaf per rail */
            c.leaf[i] = i % leaves;
            break;
        case 3: /* 20 to 36 nodes were free below each leaf */
            if (left-- == 0) {
                l = (l + 1) % leaves;
                left = 19 + roll(17);
            }
            c.leaf[i] = order[l];
            break;
        case 4: /* three nodes in a hundred are on another leaf */
            c.leaf[i] = roll(100) < 3 ? roll(leaves) : i / 32;
            break;
        case 5: /* every second node is on the neighbouring leaf */
            c.leaf[i] = i / 64 * 2 + i % 2;
            break;
        case 6: /* two halves of a room, numbered one after the other */
            c.leaf[i] = i % 2048 / 16;
            break;
        default: /* in order */
            c.leaf[i] = i / 32;
        }
    }
}

static void test_length(int kind, const char *what)
{
    size_t longest = 0;
    int whole = 1;

    c.n = NODES_MOST;
    state = 1;
    set_leaves(kind, 128);
    for (int i = 0; i < c.n; i++)
        c.tasks[i] = 8;
    make_fabric(128, 8, 0);
    for (int pp = 1; pp <= 64; pp *= pp < 4 ? 4 : 2) {
        struct plait_plan *plan;
        char *text;

        make_request(8, pp % 16 == 8 ? 2 : 1, pp);
        plan = plait_plan_create(&c.request, NULL);
        text = plan ? plait_plan_encode(plan) : NULL;
        whole &= text && decodes(plan, text);
        if (text && strlen(text) > longest)
            longest = strlen(text);
        free(text);
        plait_plan_destroy(plan);
    }
    ok(whole && longest < 4096, "4,096 nodes, %s: at most %zu characters", what,
       longest);
}

int main(void)
{
    static const char *const kinds[] = {"in order",
                                        "shuffled leaves",
                                        "dealt round the leaves",
                                        "uneven shuffled leaves",
                                        "some moved",
                                        "pairs of leaves interleaved",
                                        "two halves"};

    test_random();
    test_order();
    for (int i = 0; i < (int)(sizeof(kinds) / sizeof(kinds[0])); i++)
        test_length(i, kinds[i]);
    plait_fabric_destroy(c.fabric);
    return done_testing();
}
