/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/plan/plan.h"

enum { NODES_MOST = 4096 };

static const char *names[NODES_MOST];
static int tasks[NODES_MOST];

static struct plait_plan_request make(int nnodes, int per_node, int tp)
{
    struct plait_plan_request r;

    memset(&r, 0, sizeof(r));
    plait_layout_init(&r.layout);
    r.layout.size[PLAIT_TP] = tp;
    r.layout.size[PLAIT_DP] = PLAIT_AUTO;
    r.nnodes = nnodes;
    for (int i = 0; i < nnodes; i++)
        tasks[i] = per_node;
    r.nodes = names;
    r.tasks = tasks;
    return r;
}

static struct plait_fabric *two_leaves(void)
{
    static const char text[] = "SwitchName=s0 Nodes=n0,n2\n"
                               "SwitchName=s1 Nodes=n1,n3\n"
                               "SwitchName=s2 Switches=s[0-1]\n";

    return plait_fabric_parse("F", text, strlen(text), NULL);
}

static void test_leaves(void)
{
    struct plait_plan_request r = make(4, 2, 2);
    struct plait_fabric *f = two_leaves();
    struct plait_error err = {""};
    struct plait_plan *p;

    r.fabric = f;
    p = plait_plan_create(&r, &err);
    ok(p && p->layout.size[PLAIT_DP] == 4, "dp is inferred");
    ok(p && p->node_rank[0] == 0 && p->node_rank[2] == 1 &&
           p->node_rank[1] == 2 && p->node_rank[3] == 3,
       "nodes go leaf by leaf");
    ok(p && p->first_rank[0] == 0 && p->first_rank[2] == 2 &&
           p->first_rank[1] == 4 && p->first_rank[3] == 6,
       "ranks follow the nodes");
    plait_plan_destroy(p);
    r.placement = PLAIT_PLACE_LINEAR;
    p = plait_plan_create(&r, &err);
    ok(p && p->node_rank[0] == 0 && p->node_rank[1] == 1 &&
           p->node_rank[2] == 2 && p->node_rank[3] == 3,
       "linear never permutes");
    plait_plan_destroy(p);
    plait_fabric_destroy(f);
}

static void refuse(const struct plait_plan_request *r, const char *want)
{
    struct plait_error err = {""};
    struct plait_plan *p = plait_plan_create(r, &err);

    if (!ok(!p && strcmp(err.text, want) == 0, "refuses: %s", want))
        diag("got: %s", p ? "(accepted)" : err.text);
    plait_plan_destroy(p);
}

static void test_refusals(void)
{
    struct plait_plan_request r = make(4, 4, 8);

    refuse(&r, "--tp=8 does not fit in a node: n0 has 4 tasks; --tp=4 would "
               "fit");
    r = make(2, 6, 4);
    refuse(&r, "the 6 tasks of node n0 are not divisible by --tp=4; --tp=3 or "
               "--tp=6 would fit");
    r = make(4, 4, 3);
    refuse(&r, "16 tasks are not divisible by --tp=3; --tp=2 --dp=8 or --tp=4 "
               "--dp=4 would fit");
    r = make(2, 4, 4);
    tasks[1] = 1;
    tasks[0] = 7;
    refuse(&r, "the 7 tasks of node n0 are not divisible by --tp=4; "
               "--ntasks-per-node=4 would fit");
    r = make(2, 4, 4);
    r.nodes = (const char *const[]){"n1", "n1"};
    refuse(&r, "node n1 is named twice");
    r = make(0, 1, 1);
    refuse(&r, "no nodes to place tasks on");
    r = make(2, 0, 1);
    refuse(&r, "node n0 has 0 tasks; must have at least 1");
}

static bool same(const struct plait_plan *a, const struct plait_plan *b)
{
    size_t n = (size_t)a->nnodes * sizeof(int);

    return a->nnodes == b->nnodes && a->placement == b->placement &&
           memcmp(&a->layout, &b->layout, sizeof(a->layout)) == 0 &&
           memcmp(a->node_rank, b->node_rank, n) == 0 &&
           memcmp(a->first_rank, b->first_rank, n) == 0 &&
           memcmp(a->tasks, b->tasks, n) == 0 &&
           memcmp(a->domain, b->domain, n) == 0;
}

static void round_trip(struct plait_plan *p, const char *what, size_t most)
{
    struct plait_error err = {""};
    char *text = plait_plan_encode(p);
    struct plait_plan *back = text ? plait_plan_decode(text, &err) : NULL;
    int bad = 0;

    if (!ok(back && same(p, back), "%s: decode gives back the plan", what))
        diag("%s", err.text);
    ok(text && strlen(text) < most && !strpbrk(text, " \t\n"),
       "%s: %zu characters", what, text ? strlen(text) : 0);
    for (int i = 0; text && i < p->nnodes; i++) {
        struct plait_plan_part part;

        bad += plait_plan_decode_part(text, i, &part, &err) < 0 ||
               part.nnodes != p->nnodes || part.node_rank != p->node_rank[i] ||
               part.first_rank != p->first_rank[i] ||
               part.tasks != p->tasks[i] || part.domain != p->domain[i] ||
               memcmp(&part.layout, &p->layout, sizeof(p->layout)) != 0;
    }
    ok(bad == 0, "%s: every part agrees", what);
    plait_plan_destroy(back);
    free(text);
}

/* 4,096 nodes, 16 to a leaf, named so that Slurm's order goes round robin */
static struct plait_fabric *many_leaves(int nnodes)
{
    size_t room = (size_t)nnodes * 16 + 1;
    char *text = malloc(room + 8192), *p = text;
    struct plait_fabric *f;
    int leaves = nnodes / 16;

    for (int l = 0; l < leaves; l++) {
        p += sprintf(p, "SwitchName=s%d Nodes=n%d", l, l);
        for (int i = l + leaves; i < nnodes; i += leaves)
            p += sprintf(p, ",n%d", i);
        *p++ = '\n';
    }
    f = plait_fabric_parse("F", text, (size_t)(p - text), NULL);
    free(text);
    return f;
}

static void test_code(void)
{
    struct plait_plan_request r = make(4096, 8, 8);
    struct plait_fabric *f = many_leaves(4096);
    struct plait_plan *p;

    r.fabric = f;
    r.layout.size[PLAIT_PP] = 16;
    p = plait_plan_create(&r, NULL);
    if (p)
        round_trip(p, "4,096 nodes", 4096);
    plait_plan_destroy(p);
    plait_fabric_destroy(f);

    r = make(7, 4, 2);
    tasks[2] = 2;
    tasks[5] = 6;
    f = many_leaves(7);
    r.fabric = f;
    p = plait_plan_create(&r, NULL);
    if (ok(p != NULL, "uneven tasks"))
        round_trip(p, "uneven tasks", 128);
    plait_plan_destroy(p);
    plait_fabric_destroy(f);
}

static void test_damage(void)
{
    static const char *const bad[] = {
        "",
        "3/1.1.1.1.1/tp-cp-ep-dp-pp/topology/0/1*1",
        "1/0.1.1.1.1/tp-cp-ep-dp-pp/topology/0/1*1",
        "1/2.1.1.1.1/tp-cp-ep-dp-pp/topology/0/1*1",
        "1/1.1.1.2/tp-cp-ep-dp-pp/topology/0-1/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp/topology/0-1/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/elsewhere/0-1/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-0,0/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0,2/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/1*2",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/3*1",
        "1/1.1.1.7.1/tp-cp-ep-dp-pp/linear/3-0,4/45*1,1*3",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1,",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1,/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1|/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1|0.1.1/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1|1.2.1/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1|2.1.0/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1|2.1/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1|2.1.1,/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1|2.1.1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-3:2/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-999999999/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear//2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0*2-1/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0*9999+999999/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0*2/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1x",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1/",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1/1*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1/3*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1/1*1,1*0",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1/2*1,",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1,/2*1",
        "1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1/2*1/2*1"};
    struct plait_plan_part part;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct plait_error err = {""};
        struct plait_plan *p = plait_plan_decode(bad[i], &err);

        ok(!p && err.text[0], "damaged: \"%s\"", bad[i]);
        plait_plan_destroy(p);
    }
    ok(plait_plan_decode_part("1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1", 2,
                              &part, NULL) == -1,
       "no such node");
    ok(plait_plan_decode_part("1/1.1.1.2.1/tp-cp-ep-dp-pp/linear/0-1/2*1", -1,
                              &part, NULL) == -1,
       "no negative node");
}

/* Nodes of a block are in one NVLink domain, which the plan tells each. */
static void test_domains(void)
{
    static const char blocks[] = "BlockName=b1 Nodes=n0,n2\n"
                                 "BlockName=b2 Nodes=n1,n3\n"
                                 "BlockSizes=2\n";
    struct plait_plan_request r = make(4, 2, 4);
    struct plait_fabric *f =
        plait_fabric_parse("F", blocks, strlen(blocks), NULL);
    struct plait_plan *p;
    char *code;

    r.fabric = f;
    p = plait_plan_create(&r, NULL);
    ok(p && p->domain[0] == 1 && p->domain[1] == 2 && p->domain[2] == 1 &&
           p->domain[3] == 2,
       "blocks are domains");
    if (p)
        round_trip(p, "two blocks", 64);
    code = p ? plait_plan_encode(p) : NULL;
    ok(code && !strncmp(code, "2/", 2), "earlier releases read another "
                                        "version in that plan");
    free(code);
    plait_plan_destroy(p);
    plait_fabric_destroy(f);
    r.fabric = f = two_leaves();
    r.layout.size[PLAIT_TP] = 2;
    p = plait_plan_create(&r, NULL);
    ok(p && p->domain[0] == 0 && p->domain[3] == 0, "leaf switches are none");
    plait_plan_destroy(p);
    plait_fabric_destroy(f);
}

int main(void)
{
    static char text[NODES_MOST][8];

    for (int i = 0; i < NODES_MOST; i++) {
        snprintf(text[i], sizeof(text[i]), "n%d", i);
        names[i] = text[i];
    }
    test_leaves();
    test_domains();
    test_refusals();
    test_code();
    test_damage();
    return done_testing();
}
