/* SPDX-License-Identifier: Apache-2.0 */
/* Which parts of a step are recorded as graphs, and that recorded transfers are
 * counted each time the graph runs. */
#include <errno.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/comm/backend.h"
#include "runtime/mesh/graph_capture.h"
#include "tap.h"

/* Worlds that differ only in what matters here. */
static bool keeps_order(void)
{
    return true;
}

static const struct plait_comm_vtable on_device = {.records = true,
                                                   .orders = keeps_order};
static const struct plait_comm_vtable old_nccl = {.records = true};
static const struct plait_comm_vtable by_host = {.records = false};

/* -- a device that records: ops queued meanwhile have no effect ------------ */

static int recorded, run, refuse;

static int begin(struct plait_queue *q)
{
    (void)q;
    recorded++;
    return 0;
}

static struct plait_graph *end(struct plait_queue *q, const char **why)
{
    if (!refuse)
        return (struct plait_graph *)q;
    *why = "no";
    return NULL;
}

static int run_graph(struct plait_queue *q, struct plait_graph *graph)
{
    (void)q;
    (void)graph;
    run++;
    return 0;
}

static void forget(struct plait_graph *graph)
{
    (void)graph;
}

static const struct plait_ops device = {.graph_begin = begin,
                                        .graph_end = end,
                                        .graph_run = run_graph,
                                        .graph_destroy = forget};

/* -- decisions ------------------------------------------------------------ */

struct sizes {
    int tp, cp, dp, pp, zero, experts, ep, apart;
    int micro; /* micro-batches of a step; 0: one */
    int small; /* layers that are gathered before they could be queued */
    enum plait_precision precision;
    enum plait_schedule_kind schedule;
};

static int choose(enum plait_graph_use use, struct sizes w,
                  const struct plait_comm_vtable *by, struct plait_graphs *g,
                  struct plait_error *err)
{
    struct plait_comm world = {.vtable = by};
    struct plait_mesh mesh = {.ops = &device, .world = &world};
    struct plait_job_config c;

    memset(&c, 0, sizeof(c));
    for (int i = 0; i < PLAIT_NAXES; i++)
        mesh.layout.size[i] = 1;
    mesh.layout.size[PLAIT_TP] = w.tp ? w.tp : 1;
    mesh.layout.size[PLAIT_CP] = w.cp ? w.cp : 1;
    mesh.layout.size[PLAIT_DP] = w.dp ? w.dp : 1;
    mesh.layout.size[PLAIT_PP] = w.pp ? w.pp : 1;
    mesh.layout.size[PLAIT_EP] = w.ep ? w.ep : 1;
    mesh.gpu = (struct plait_gpu_type){
        .domain = 8, .link_bw = 1e9 * (1 + 1e3 * w.small), .nic_bw = 1e9};
    c.model.family = PLAIT_GPT2;
    c.model.layers = 2;
    c.model.hidden = c.model.ffn = 256;
    c.model.heads = c.model.kv_heads = 4;
    c.model.vocab = 512;
    c.model.seq_len = 64;
    c.train.micro_batch = 2;
    c.train.global_batch =
        2 * mesh.layout.size[PLAIT_DP] * (w.micro ? w.micro : 1);
    c.parallel.schedule = w.schedule;
    c.parallel.zero = w.zero;
    c.model.experts = w.experts;
    c.train.precision = w.precision;
    c.train.graph = use;
    c.sync.mode = w.apart ? PLAIT_SYNC_SMA : PLAIT_SYNC_EACH;
    return plait_graphs_choose(g, &c, &mesh, err);
}

/* train.graph=auto records what can be recorded. */
static void check_auto(void)
{
    static const struct {
        struct sizes sizes;
        const struct plait_comm_vtable *by;
        bool passes, last, optim;
        const char *why;
    } cases[] = {
        {{.dp = 1}, &by_host, true, true, true, ""},
        {{.dp = 2}, &on_device, true, true, true, ""},
        {{.dp = 2, .zero = 3}, &old_nccl, true, true, true, ""},
        {{.tp = 2, .cp = 2, .dp = 2, .zero = 1},
         &on_device,
         true,
         true,
         true,
         ""},
        {{.dp = 2}, &by_host, true, false, true, "MPI transfers"},
        {{.dp = 2, .zero = 1}, &by_host, true, false, false, "MPI transfers"},
        {{.zero = 2}, &by_host, false, false, false, "MPI transfers"},
        {{.tp = 2}, &by_host, false, false, true, "MPI transfers"},
        {{.tp = 2, .dp = 2}, &old_nccl, false, false, true, "no order"},
        {{.dp = 2, .apart = 1}, &on_device, true, false, true, "meetings"},
        {{.pp = 2}, &by_host, true, true, true, ""},
        {{.pp = 2, .schedule = PLAIT_SCHEDULE_ZB_H1},
         &on_device,
         true,
         true,
         true,
         ""},
        {{.pp = 2, .dp = 2, .zero = 2, .schedule = PLAIT_SCHEDULE_ZB_H1},
         &on_device,
         false,
         false,
         false,
         "gpipe and zb-h1"},
        {{.dp = 2, .zero = 2, .micro = 2},
         &on_device,
         true,
         true,
         false,
         "gathered during the next step"},
        {{.tp = 2, .pp = 2}, &old_nccl, false, false, true, "no order"},
        {{.experts = 4}, &on_device, true, true, true, ""},
        {{.experts = 4, .dp = 2, .ep = 2},
         &on_device,
         false,
         false,
         true,
         "other ranks'"},
        {{.experts = 4, .precision = PLAIT_FP8},
         &on_device,
         false,
         false,
         true,
         "tokens of each expert"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plait_error err = {""};
        struct plait_graphs g;
        int rc =
            choose(PLAIT_GRAPH_AUTO, cases[i].sizes, cases[i].by, &g, &err);

        ok(rc == 0 && g.passes == cases[i].passes && g.last == cases[i].last &&
               g.optim == cases[i].optim && !g.all &&
               strstr(g.why, cases[i].why),
           "auto, case %zu: %s", i, g.why);
    }
}

/* train.graph=on records everything, if NCCL makes the transfers. */
static void check_on(void)
{
    static const struct {
        struct sizes sizes;
        bool nccl;
        const char *refused; /* NULL: accepted */
    } cases[] = {
        {{.dp = 1}, false, NULL},
        {{.tp = 2}, true, NULL},
        {{.cp = 2}, true, NULL},
        {{.dp = 2}, true, NULL},
        {{.tp = 2, .cp = 2, .dp = 4, .zero = 3}, true, NULL},
        {{.dp = 2, .zero = 1}, true, NULL},
        {{.tp = 2}, false, "MPI transfers"},
        {{.dp = 2}, false, "MPI transfers"},
        {{.zero = 1}, false, "MPI transfers"},
        {{.tp = 2, .pp = 2, .dp = 2, .zero = 3}, true, NULL},
        {{.tp = 2, .experts = 4}, true, NULL},
        {{.dp = 2, .ep = 2, .experts = 4}, true, "other ranks'"},
        {{.experts = 4, .precision = PLAIT_FP8}, true, "tokens of each expert"},
        {{.tp = 2, .schedule = PLAIT_SCHEDULE_GPIPE}, true, NULL},
        {{.zero = 3, .schedule = PLAIT_SCHEDULE_GPIPE},
         true,
         "gpipe and zb-h1"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plait_error err = {""};
        struct plait_graphs g;
        int rc = choose(PLAIT_GRAPH_ON, cases[i].sizes,
                        cases[i].nccl ? &on_device : &by_host, &g, &err);

        if (cases[i].refused)
            ok(rc < 0 && strstr(err.text, cases[i].refused), "on, case %zu: %s",
               i, err.text);
        else
            ok(rc == 0 && g.passes && g.last && g.optim && g.all &&
                   g.why[0] == '\0',
               "on, case %zu: all of it", i);
    }
}

static void check_off(void)
{
    struct plait_error err = {""};
    struct plait_graphs g;

    ok(choose(PLAIT_GRAPH_OFF, (struct sizes){.dp = 1}, &on_device, &g, &err) ==
               0 &&
           !g.passes && !g.last && !g.optim,
       "off: nothing");
}

static bool advances_never(const struct plait_comm *comm)
{
    (void)comm;
    return false;
}

/* New weights are gathered during the next step unless a graph of all of it is
 * worth more, or nothing would move them. */
static void check_ahead(void)
{
    static const struct plait_comm_vtable idle = {.advances = advances_never};
    static const struct {
        enum plait_graph_use use;
        struct sizes sizes;
        const struct plait_comm_vtable *by;
        bool ahead;
    } cases[] = {
        {PLAIT_GRAPH_AUTO, {.dp = 2, .zero = 1}, &on_device, false},
        {PLAIT_GRAPH_AUTO, {.dp = 2, .zero = 1, .micro = 2}, &on_device, true},
        {PLAIT_GRAPH_AUTO, {.cp = 2, .zero = 2, .micro = 2}, &on_device, true},
        {PLAIT_GRAPH_AUTO, {.dp = 2, .zero = 3, .micro = 2}, &on_device, false},
        {PLAIT_GRAPH_AUTO, {.dp = 2, .micro = 2}, &on_device, false},
        {PLAIT_GRAPH_AUTO, {.tp = 2, .zero = 1, .micro = 2}, &on_device, false},
        {PLAIT_GRAPH_AUTO,
         {.dp = 2, .zero = 1, .micro = 2, .small = 1},
         &on_device,
         false},
        {PLAIT_GRAPH_AUTO,
         {.dp = 16, .zero = 1, .micro = 2, .small = 1},
         &on_device,
         true}, /* over the network, which takes longer */
        {PLAIT_GRAPH_AUTO,
         {.dp = 2, .pp = 2, .zero = 1, .micro = 2},
         &on_device,
         true},
        {PLAIT_GRAPH_AUTO,
         {.dp = 2, .pp = 2, .zero = 2, .micro = 2},
         &on_device,
         false},
        {PLAIT_GRAPH_OFF,
         {.dp = 2, .pp = 2, .zero = 2, .micro = 2},
         &on_device,
         true},
        {PLAIT_GRAPH_OFF, {.dp = 2, .zero = 1, .small = 1}, &on_device, true},
        {PLAIT_GRAPH_ON, {.dp = 2, .zero = 1, .micro = 2}, &on_device, false},
        {PLAIT_GRAPH_OFF, {.dp = 2, .zero = 1}, &on_device, true},
        {PLAIT_GRAPH_AUTO, {.dp = 2, .zero = 1}, &by_host, true},
        {PLAIT_GRAPH_AUTO, {.dp = 2, .zero = 1, .micro = 2}, &idle, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plait_error err = {""};
        struct plait_graphs g;

        ok(choose(cases[i].use, cases[i].sizes, cases[i].by, &g, &err) == 0 &&
               g.ahead == cases[i].ahead,
           "gathers, case %zu: %s", i,
           cases[i].ahead ? "during the next step" : "before it");
    }
}

/* -- counts --------------------------------------------------------------- */

struct job {
    struct plait_comm *comm;
    int calls;
    int state, kept; /* what transfer() changes on the host */
};

static void keep(void *arg)
{
    struct job *job = arg;

    job->kept = job->state;
}

static void restore(void *arg)
{
    struct job *job = arg;

    job->state = job->kept;
}

static int transfer(void *arg)
{
    struct job *job = arg;
    float x[2] = {1, 2};

    job->calls++;
    job->state++;
    return plait_comm_all_reduce(job->comm,
                                 &(struct plait_buffers){x, x, 2, PLAIT_F32},
                                 PLAIT_SUM, NULL, NULL);
}

static uint64_t calls_of(const struct plait_comm *comm)
{
    struct plait_comm_stats stats;

    plait_comm_stats(comm, &stats);
    return stats.calls;
}

static void check_counts(void)
{
    struct plait_comm *comm = plait_self_create(NULL, NULL, "tp");
    struct plait_mesh mesh = {.ops = &device, .world_size = 1};
    struct plait_graph_capture capture = {.keep = keep, .restore = restore};
    struct job job = {.comm = comm};
    int i, good = 1;

    mesh.q = (struct plait_queue *)&job; /* the fake device ignores it */
    mesh.group[PLAIT_GROUP_TP] = comm;
    for (i = 1; i <= 5; i++)
        good &= plait_graph_capture_run(&capture, &mesh, transfer, &job) == 0 &&
                calls_of(comm) == (uint64_t)i;
    ok(good, "each run counts once");
    ok(job.calls == 2 && recorded == 1 && run == 4,
       "of which one was made, one recorded, and four ran as a graph");
    plait_graph_capture_reset(&capture, &mesh);

    refuse = 1;
    good = plait_graph_capture_run(&capture, &mesh, transfer, &job);
    ok(good == 0 && calls_of(comm) == 6 && job.calls == 4 && mesh.graphs.failed,
       "what cannot be recorded runs, and counts once");
    ok(job.state == 3 && job.kept == 2,
       "with what the recording has changed on the host restored");
    mesh.graphs = (struct plait_graphs){.all = true};
    good = plait_graph_capture_run(&capture, &mesh, transfer, &job);
    ok(good < 0 && errno == ENOTSUP && mesh.graphs.failed && mesh.graphs.all &&
           calls_of(comm) == 6,
       "but not where all of it was to be recorded");
    plait_comm_destroy(comm);
}

/* Ranks that make transfers together agree on what is recorded; replicas that
 * train apart do not ask each other. */
static void check_agreement(void)
{
    struct plait_comm *alone = plait_self_create(NULL, NULL, "self");
    struct plait_comm *lost = plait_self_create(NULL, NULL, "dp_cp");
    struct plait_mesh mesh = {.ops = &device, .world_size = 2};
    struct plait_graph_capture capture = {.warm = true};
    struct job job = {.comm = alone};
    int rc;

    plait_comm_fail(lost, "dp_cp: nobody answers");
    mesh.q = (struct plait_queue *)&job;
    mesh.group[PLAIT_GROUP_TP] = mesh.group[PLAIT_GROUP_CP] = alone;
    mesh.group[PLAIT_GROUP_DP_CP] = lost;
    mesh.graphs = (struct plait_graphs){.transfers = true};
    refuse = 0;
    rc = plait_graph_capture_run(&capture, &mesh, transfer, &job);
    ok(rc < 0, "replicas agree on what is recorded");
    plait_graph_capture_reset(&capture, &mesh);
    mesh.graphs.apart = true;
    rc = plait_graph_capture_run(&capture, &mesh, transfer, &job);
    ok(rc == 0, "unless they train apart");
    plait_graph_capture_reset(&capture, &mesh);
    plait_comm_destroy(lost);
    plait_comm_destroy(alone);
}

int main(void)
{
    check_auto();
    check_on();
    check_off();
    check_ahead();
    check_counts();
    check_agreement();
    return done_testing();
}
