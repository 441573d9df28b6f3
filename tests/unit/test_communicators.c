/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL's communicators take of a GPU's memory: against what others have
 * measured, and summed over the communicators of a layout. */
#include <math.h>
#include <string.h>

#include "llama3_8b.h"
#include "tap.h"
#include "topology/predict/auto.h"
#include "topology/predict/estimate_comms.h"

#define MIB 1048576.0

static struct plait_gpu_type type(const char *name)
{
    struct plait_gpu_type gpu;

    plait_gpu_type_find(name, &gpu, NULL);
    return gpu;
}

static double bytes(const char *name, struct plait_comm_group group)
{
    struct plait_gpu_type gpu = type(name);

    return plait_comm_group_bytes(&gpu, &group);
}

/* NVIDIA/nccl#964: an all-reduce of 4 MB in each group of 4 A100 with NVLink,
 * by a release that gave each communicator a pool of 256 MiB for messages too.
 * NVIDIA/nccl#1685: what an all-to-all over 8 H100 of a node adds, in mappings
 * of 10485760 and 2097152 bytes for 32 channels of each pair.
 * NVIDIA/nccl#660: the pool for messages through NICs, one way. */
static void test_measured(void)
{
    double pool = 256, two, four, all, far;

    two =
        bytes("a100-80g", (struct plait_comm_group){.ranks = 2, .inside = 2}) /
        MIB;
    four =
        bytes("a100-80g", (struct plait_comm_group){.ranks = 4, .inside = 4}) /
        MIB;
    ok(two + pool == 544 && four + pool == 688,
       "groups of 2 and 4 A100: %.0f and %.0f MiB without the pool, measured "
       "544 and 688 with it",
       two, four);
    all = bytes("h100",
                (struct plait_comm_group){
                    .ranks = 8, .inside = 8, .messages = true, .peers = 7});
    ok(all == 7 * 32 * (10485760.0 + 2097152) && all > 0.8 * 3.28e9 &&
           all < 3.28e9,
       "an all-to-all of 8 H100: %.2f GB, measured 3.28", all / 1e9);
    far = bytes("a100-80g", (struct plait_comm_group){
                                .ranks = 2, .inside = 1, .messages = true});
    ok(far == 2 * 33554432, "messages through a NIC: %.0f bytes", far);
    ok(bytes("h100", (struct plait_comm_group){.ranks = 1, .inside = 1}) == 0,
       "a rank alone has no buffers");
}

/* NVSwitches that add need buffers of their own; AMD's links, the A100's and
 * two GPUs alone have none. */
static void test_switches(void)
{
    const struct plait_comm_group eight = {.ranks = 8, .inside = 8},
                                  four = {.ranks = 4, .inside = 4},
                                  two = {.ranks = 2, .inside = 2},
                                  few = {.ranks = 8,
                                         .inside = 8,
                                         .channels = 16},
                                  beyond = {.ranks = 16, .inside = 8},
                                  limited = {
                                      .ranks = 16, .inside = 8, .channels = 16};
    double ring = 24 * 1.5 * 12 * MIB;

    ok(bytes("a100-80g", eight) == ring && bytes("mi300x", eight) == ring,
       "8 A100 or MI300X: rings and trees");
    ok(bytes("h100", eight) == ring + 16 * 2 * 8 * MIB,
       "8 H100: 256 MiB more, for sums by NVSwitches");
    ok(bytes("gh200", four) == bytes("a100-80g", four) &&
           bytes("h800", four) > 16 * 2 * 4 * MIB,
       "a node's 4 GH200 are joined directly, without NVSwitches");
    ok(bytes("b200", eight) == (32 * 1.5 * 12 + 24 * 2 * 8) * MIB,
       "8 B200: 24 channels of NVSwitches");
    ok(bytes("b200", few) == 16 * (1.5 * 12 + 2 * 8) * MIB,
       "and 16 where the group has no more");
    ok(bytes("gb200", beyond) - bytes("gb200", limited) ==
           (32 - 16) * 2 * 8 * MIB,
       "and 32 for a group that goes beyond its node");
    ok(bytes("h100", two) == 24 * 12 * MIB, "2 H100: a ring");
    ok(bytes("l40s", eight) < bytes("a100-80g", eight) / 5,
       "without NVLink there are few channels");
}

/* What a GPU is does not follow from a rate that a site has measured. */
static void test_measured_links(void)
{
    static const char *const names[] = {"a100-80g", "h800",   "h100",
                                        "b200",     "mi300x", "l40s"};
    static const double rates[] = {90e9, 200e9, 300e9, 700e9};
    struct plait_comm_group group = {.ranks = 8, .inside = 8};

    for (int i = 0; i < 6; i++) {
        struct plait_gpu_type gpu = type(names[i]);
        double sums = bytes(names[i], group), messages;
        bool same = true;

        group.messages = true;
        group.peers = 7;
        messages = bytes(names[i], group);
        for (int k = 0; k < 4; k++) {
            gpu.link_bw = rates[k];
            group.messages = true;
            same &= plait_comm_group_bytes(&gpu, &group) == messages;
            group.messages = false;
            same &= plait_comm_group_bytes(&gpu, &group) == sums;
        }
        ok(same && sums > 0, "%s with other rates of links: as many buffers",
           names[i]);
    }
}

/* Megabytes that the communicators of a layout take on a GPU of the stage. */
static double layout_bytes(struct plait_job_config *c, int tp, int pp, int dp,
                           int stage)
{
    struct plait_gpu_type gpu = type("h100");
    struct plait_error err = {""};
    struct plait_memory memory;
    struct plait_layout l;

    plait_layout_init(&l);
    l.size[PLAIT_TP] = tp;
    l.size[PLAIT_PP] = pp;
    l.size[PLAIT_DP] = dp;
    if (plait_estimate_memory(c, &l, &gpu, stage, &memory, &err) < 0) {
        diag("%s", err.text);
        return NAN;
    }
    return memory.communicators / MIB;
}

static void test_layouts(void)
{
    /* sums of 8 and of 2 ranks of a node; sums across nodes, of one rank each:
     * 4 channels of 20 MiB for a ring and up to 40 for trees */
    double eight = 24 * 18 + 256, two = 24 * 12, world, pipe;
    struct plait_job_config c;
    double stage[3];

    llama3_8b(&c);

    c.train.global_batch = 1024;
    ok(layout_bytes(&c, 1, 1, 1, 0) == 0, "one GPU: none");
    ok(layout_bytes(&c, 1, 1, 8, 0) == eight + 16 * 18 + 256,
       "dp 8: the world, and gradients with 16 channels");
    ok(layout_bytes(&c, 8, 1, 1, 0) == eight + 24 * 18 + 24 * 16,
       "tp 8: the world, and sums with 24 channels of NVSwitches");
    ok(layout_bytes(&c, 2, 1, 1, 0) == 2 * two, "tp 2: two rings");
    world = 16 * (7.0 / 8 * 12 + 6 + 20 * (1 + 2 * 63.0 / 64) / 8) + 256;
    for (int i = 0; i < 3; i++)
        stage[i] = layout_bytes(&c, 8, 4, 16, i);
    pipe = stage[0] - world - (24 * 18 + 24 * 16);
    ok(pipe > 64 && fabs(pipe - 64 - 4 * 20 * (1 + 2 * 15.0 / 16)) < 1e-6,
       "tp 8 pp 4 dp 16: the world, tp, messages through NICs and gradients "
       "across nodes: %.0f MiB",
       stage[0]);
    ok(stage[0] == stage[1] && stage[0] > 1400 && stage[0] < 4000,
       "the same on each stage, as all neighbours are on other nodes");
    for (int i = 0; i < 3; i++)
        stage[i] = layout_bytes(&c, 1, 4, 2, i);
    ok(stage[1] - stage[0] == 16 * 12 && stage[1] == stage[2],
       "pp 4 in a node: an inner stage has one neighbour more, 192 MiB");
    c.model.tie_embeddings = true;
    ok(layout_bytes(&c, 1, 4, 2, 0) - stage[0] == 16 * 12 &&
           layout_bytes(&c, 1, 4, 2, 1) == stage[1],
       "a tied embedding joins the ends");
    c.parallel.all_reduce = PLAIT_ALL_REDUCE_FLAT;
    pipe = layout_bytes(&c, 1, 1, 16, 0);
    c.parallel.all_reduce = PLAIT_ALL_REDUCE_AUTO;
    ok(layout_bytes(&c, 1, 1, 16, 0) > pipe + 16 * 18 + 256,
       "gradients summed node by node have two communicators more");
}

static void test_experts(void)
{
    struct plait_gpu_type gpu = type("h100");
    struct plait_job_config c;
    struct plait_memory one, eight;
    struct plait_layout l;

    llama3_8b(&c);

    c.train.global_batch = 1024;
    c.model.experts = 8;
    c.model.experts_top_k = 2;
    plait_layout_init(&l);
    l.size[PLAIT_DP] = 8;
    plait_estimate_memory(&c, &l, &gpu, 0, &one, NULL);
    l.size[PLAIT_EP] = 8;
    plait_estimate_memory(&c, &l, &gpu, 0, &eight, NULL);
    ok(eight.communicators - one.communicators ==
           (7 * 32 * 12 - (16 * 18 + 256)) * MIB,
       "ep 8: 2.8 GB of connections between all pairs, and no sums of experts");
}

/* The choice of sizes, all of which are given, in a memory of so many bytes. */
static struct plait_choices *choices_in(const struct plait_job_config *c,
                                        double memory)
{
    struct plait_gpu_type gpu = type("h100");

    gpu.memory = memory;
    return plait_auto_sizes_create(c, &c->parallel.layout, 8, &gpu, 10);
}

/* A plan that fits by less than its communicators does not fit. */
static void test_fit(void)
{
    struct plait_gpu_type gpu = type("h100");
    struct plait_choices *enough, *less;
    struct plait_job_config c;
    struct plait_estimate e;
    struct plait_layout l;
    struct plait_error err = {""};

    llama3_8b(&c);

    c.train.global_batch = 1024;
    c.parallel.sequence = true;
    plait_layout_init(&l);
    l.size[PLAIT_TP] = 8;
    c.parallel.layout = l;
    if (plait_estimate(&c, &l, &gpu, &e, &err) < 0)
        memset(&e, 0, sizeof(e));
    ok(e.memory.communicators > 1.2e9 &&
           e.memory.buffers >= 1e9 + e.memory.communicators,
       "communicators of the fullest GPU: %.2f GB%s",
       e.memory.communicators / 1e9, err.text);
    enough = choices_in(&c, e.memory.total);
    less = choices_in(&c, e.memory.total - e.memory.communicators / 2);
    ok(enough && enough->n == 1 &&
           enough->choice[0].estimate.memory.total == e.memory.total,
       "in just its memory the layout is found");
    ok(less && less->n == 0 && less->too_large == 1,
       "but not where half of its communicators has no room");
    plait_choices_destroy(enough);
    plait_choices_destroy(less);
}

int main(void)
{
    test_measured();
    test_switches();
    test_measured_links();
    test_layouts();
    test_experts();
    test_fit();
    return done_testing();
}
