/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "tap.h"
#include "topology/plan/cost.h"
#include "topology/plan/cost_layer.h"

/* Costs calculated by hand for two or four nodes of eight tasks. */

static const char *const names[] = {"a", "b", "c", "d"};
static const int eight[] = {8, 8, 8, 8};
static struct plait_gpu_type gpu;

static void is(double got, double want, const char *what)
{
    if (!ok(fabs(got - want) <= 1e-9 * want, "%s", what))
        diag("got %g, want %g", got, want);
}

/* The planned cost of tp, cp, dp, pp on `n` nodes of a fabric; conf NULL:
 * flat. */
static struct plait_cost cost_of(int n, const int size[PLAIT_NAXES],
                                 const char *conf,
                                 const struct plait_traffic *traffic)
{
    struct plait_plan_request r;
    struct plait_cost cost = {.step = -1}, linear;
    struct plait_fabric *f =
        conf ? plait_fabric_parse("F", conf, strlen(conf), NULL) : NULL;
    struct plait_plan *plan;

    memset(&r, 0, sizeof(r));
    plait_layout_init(&r.layout);
    memcpy(r.layout.size, size, sizeof(r.layout.size));
    r.nnodes = n;
    r.nodes = names;
    r.tasks = eight;
    r.fabric = f;
    r.traffic = traffic;
    r.gpu = &gpu;
    plan = plait_plan_create(&r, NULL);
    if (plan)
        plait_cost_plan(&r, plan, &cost, &linear, NULL);
    plait_plan_destroy(plan);
    plait_fabric_destroy(f);
    return cost;
}

static const char one_leaf[] = "SwitchName=s Nodes=a,b,c,d\n";
static const char two_leaves[] = "SwitchName=s0 Nodes=a,b\n"
                                 "SwitchName=s1 Nodes=c,d\n"
                                 "SwitchName=s2 Switches=s0,s1\n";
static const char apart[] = "SwitchName=s0 Nodes=a\nSwitchName=s1 Nodes=b\n"
                            "SwitchName=s2 Switches=s0,s1\n";

static void test_rings(void)
{
    struct plait_traffic t = {.bytes = {1e6, 1e6, 1e6, 1e9, 1e7},
                              .calls = {100, 0, 0, 1, 10}};
    const int tp_dp[] = {8, 1, 1, 2, 1}, dp[] = {1, 1, 1, 16, 1};
    const int pp[] = {8, 1, 1, 1, 2};
    struct plait_cost c = cost_of(2, tp_dp, one_leaf, &t);

    is(c.axis[PLAIT_TP],
       100 * (2 * 6 * gpu.link_alpha + 2 * 7.0 / 8 * 1e6 / gpu.link_bw),
       "tp all-reduces over the node's links");
    is(c.axis[PLAIT_DP], 2 * gpu.nic_alpha + 1e9 / gpu.nic_bw,
       "eight dp rings share eight NICs");
    c = cost_of(2, tp_dp, apart, &t);
    is(c.axis[PLAIT_DP],
       2 * (gpu.nic_alpha + gpu.hop_alpha) + 2 * 1e9 / gpu.nic_bw,
       "between leaves oversubscription halves that");
    c = cost_of(2, dp, one_leaf, &t);
    is(c.axis[PLAIT_DP],
       2 * 8 * gpu.nic_alpha +
           2 * 15.0 / 16 * 1e9 / fmin(8 * gpu.nic_bw, gpu.link_bw),
       "one ring through both nodes has all eight NICs");
    c = cost_of(2, pp, one_leaf, &t);
    is(c.axis[PLAIT_PP], 2 * 10 * (gpu.nic_alpha + 1e7 / gpu.nic_bw),
       "pp messages go both ways");
    is(c.step, c.axis[PLAIT_TP] + c.axis[PLAIT_PP], "the step is the sum");
}

static void test_alltoall(void)
{
    struct plait_traffic t = {.bytes = {[PLAIT_EP] = 1e8},
                              .calls = {[PLAIT_EP] = 1}};
    const int within[] = {1, 1, 8, 16, 1}, across[] = {1, 1, 16, 16, 1};
    struct plait_cost c = cost_of(2, across, one_leaf, &t);

    /* 8 of 16 members are on each node: 8 * 8 / 16 shares leave it */
    is(c.axis[PLAIT_EP], 15 * gpu.nic_alpha + 4 * 1e8 / (8 * gpu.nic_bw),
       "an all-to-all across two nodes");
    c = cost_of(2, within, one_leaf, &t);
    is(c.axis[PLAIT_EP], 7 * gpu.link_alpha + 1e8 / gpu.link_bw,
       "an all-to-all inside a node");
}

static void test_ring_of_leaves(void)
{
    struct plait_traffic t = {.bytes = {[PLAIT_DP] = 1e9},
                              .calls = {[PLAIT_DP] = 1}};
    const int size[] = {8, 1, 1, 4, 1};
    struct plait_cost c = cost_of(4, size, two_leaves, &t);

    /* leaf by leaf, 8 of 16 edges leave a leaf of 16 NICs, half of which can
     * reach the spine at once */
    is(c.axis[PLAIT_DP],
       2 * 3 * (gpu.nic_alpha + gpu.hop_alpha) + 1.5 * 1e9 / gpu.nic_bw,
       "a ring leaf by leaf is no slower than its NICs");
}

/* Rounds across the network against one pass inside each node. */
static void hierarchical(void)
{
    struct plait_gpu_type g = {.link_bw = 400e9,
                               .link_alpha = 1e-6,
                               .nic_bw = 50e9,
                               .nic_alpha = 10e-6,
                               .per_node = 8};
    double flat = plait_cost_allreduce_flat(8, 4, 32e6, &g);
    double steps = plait_cost_allreduce_hierarchical(8, 4, 32e6, &g);

    /* 2 * 10 rounds of 32 ranks; 2 * 31/32 * 32 MB at 400 GB/s */
    ok(fabs(flat - (20 * 10e-6 + 62e6 / 400e9)) < 1e-12, "32 ranks as one");
    /* 2 * 6 rounds of 8, 2 * 3 of 4; 2 * 7/8 * 32 MB, 2 * 3/4 * 4 MB over
     * one NIC */
    ok(fabs(steps - (12 * 1e-6 + 56e6 / 400e9 + 6 * 10e-6 + 6e6 / 50e9)) <
           1e-12,
       "in the node, across, in the node");
    ok(plait_cost_allreduce_hierarchical(8, 4, 1e6, &g) <
           plait_cost_allreduce_flat(8, 4, 1e6, &g),
       "small sums are faster in steps");
    ok(plait_cost_allreduce_hierarchical(8, 4, 1e9, &g) >
           plait_cost_allreduce_flat(8, 4, 1e9, &g),
       "large ones as one group");
}

/* Buckets by latency and bandwidth of the links that a group's sums cross. */
static void buckets(void)
{
    struct plait_gpu_type g = {.link_bw = 400e9,
                               .link_alpha = 1e-6,
                               .nic_bw = 50e9,
                               .nic_alpha = 7e-6,
                               .per_node = 8},
                          slow = g;

    ok(plait_cost_bucket(0, 8, 1, &g) == 25 * 1048576.0 &&
           plait_cost_bucket(0, 1, 1, &g) == 25 * 1048576.0,
       "inside a node 25 MiB");
    /* 19 * 6 rounds * 7 us * 50 GB/s * 8/7 = 43.5 MiB */
    ok(plait_cost_bucket(0, 1, 8, &g) == 48 * 1048576.0,
       "one rank on each of eight nodes: 48 MiB");
    /* 19 * 5 * 7 us * 100 GB/s * 6/5 = 76.1 MiB */
    ok(plait_cost_bucket(0, 2, 3, &g) == 80 * 1048576.0,
       "two with a NIC each on each of three: 80 MiB");
    slow.nic_alpha *= 3;
    ok(plait_cost_bucket(0, 1, 8, &slow) == 136 * 1048576.0,
       "three times the latency: 136 MiB, of 130.5");
    ok(plait_cost_bucket(0, 8, 64, &g) == 256 * 1048576.0,
       "all GPUs of many nodes: the most, 256 MiB");
    slow.nic_bw = 1e9;
    ok(plait_cost_bucket(0, 1, 8, &slow) == 25 * 1048576.0,
       "latency is little of a slow network: the least");
    ok(plait_cost_bucket(0.01, 8, 1, &g) == 10485.76 &&
           plait_cost_bucket(1000, 8, 64, &g) == 1000 * 1048576.0,
       "what is given is taken");
    for (int n = 2; n <= 64; n *= 2) {
        double bytes = plait_cost_bucket(0, 1, n, &g);
        double all = plait_cost_allreduce_flat(1, n, bytes, &g);

        ok(plait_cost_allreduce_flat(1, n, 0, &g) <= 0.05 * all,
           "%d nodes: latency is at most 5 %%", n);
    }
}

/* Products that alternate with transfers, calculated by hand. */
static void turns(void)
{
    struct plait_gpu_type g = {.flops16 = 1e12,
                               .matmul = 1,
                               .memory_bw = 1e15,
                               .stream = 1,
                               .link_bw = 1e9,
                               .link_alpha = 10e-6,
                               .nic_bw = 1e8,
                               .nic_alpha = 20e-6,
                               .per_node = 1};
    struct plait_cost_layer l = {.rows = 1000,
                                 .hidden = 100,
                                 .width = {100},
                                 .element = 2,
                                 .precision = PLAIT_BF16,
                                 .sequence = true,
                                 .inside = 2,
                                 .across = 1};

    /* a product takes 20 us * (1 + 64/100), its gather or scatter 10 + 100 us;
     * the other three widths are transfers only */
    is(plait_cost_chunked(&l, 1, &g), 2 * 142.8e-6 + 6 * 110e-6,
       "all rows at once");
    is(plait_cost_chunked(&l, 2, &g),
       2 * (16.4e-6 + 60e-6 + 60e-6) + 6 * 120e-6,
       "in halves: the second transfer hides the first product");
    g.layer_s = 12 * 5e-6;
    is(plait_cost_chunked(&l, 2, &g),
       2 * (21.4e-6 + 65e-6 + 65e-6) + 6 * 130e-6, "each has a launch");
    g.layer_s = 0;
    l.sequence = false;
    is(plait_cost_chunked(&l, 1, &g), 32.8e-6 + 4 * 220e-6,
       "whole sums, nothing gathered");
    l.inside = 1;
    l.across = 2;
    is(plait_cost_chunked(&l, 1, &g), 32.8e-6 + 4 * 2040e-6, "over two nodes");
}

/* The best of 1, 2 and 4 chunks for a Llama's layer in bf16. */
static int best_chunks(const char *type, int rows, int hidden, int kv, int ffn,
                       int tp)
{
    struct plait_cost_layer l = {.rows = rows,
                                 .hidden = hidden,
                                 .width = {(double)(hidden + 256 * kv) / tp,
                                           (double)hidden / tp, 2.0 * ffn / tp,
                                           (double)ffn / tp},
                                 .element = 2,
                                 .precision = PLAIT_BF16,
                                 .sequence = true,
                                 .inside = tp,
                                 .across = 1};
    struct plait_gpu_type g;
    int best = 1;

    plait_gpu_type_find(type, &g, NULL);
    for (int n = 2; n <= 4; n *= 2)
        if (plait_cost_chunked(&l, n, &g) < plait_cost_chunked(&l, best, &g))
            best = n;
    return best;
}

static void chunks(void)
{
    ok(best_chunks("h100", 4096, 4096, 8, 14336, 2) == 1,
       "8B, 4096 rows on 2 H100: transfers are short beside products");
    ok(best_chunks("h100", 4096, 4096, 8, 14336, 8) == 2,
       "on 8: products and transfers are equally long");
    ok(best_chunks("h100", 8192, 8192, 8, 28672, 8) == 4,
       "70B, 8192 rows on 8: both are long");
    ok(best_chunks("h100", 1024, 1024, 8, 4096, 8) == 1,
       "a small model: latency is most of a transfer");
    ok(best_chunks("b200", 2048, 4096, 8, 14336, 8) == 1 &&
           best_chunks("b200", 8192, 4096, 8, 14336, 8) == 2,
       "a faster GPU: fewer");
}

/* The traffic of eight experts, of which a token goes to two. */
static void traffic_of(struct plait_job_config *c, int tp, int cp, int ep,
                       int dp, struct plait_traffic *t)
{
    struct plait_layout l;

    c->model = (struct plait_model_config){.family = PLAIT_LLAMA,
                                           .layers = 4,
                                           .hidden = 64,
                                           .heads = 8,
                                           .kv_heads = 2,
                                           .ffn = 128,
                                           .vocab = 256,
                                           .seq_len = 32,
                                           .experts = 8,
                                           .experts_top_k = 2};
    c->parallel.virtual_stages = 1;
    c->train.precision = PLAIT_BF16;
    c->train.micro_batch = 1;
    c->train.global_batch = 16;
    plait_layout_init(&l);
    l.size[PLAIT_TP] = tp;
    l.size[PLAIT_CP] = cp;
    l.size[PLAIT_EP] = ep;
    l.size[PLAIT_DP] = dp;
    plait_traffic_set(t, c, &l);
}

static void test_traffic(void)
{
    double experts = 4 * 8 * 3 * 64 * 128.0, dense, row = 2 * 64, rounds;
    struct plait_job_config c = {.framework = PLAIT_FRAMEWORK_PLAIT};
    struct plait_traffic t;

    traffic_of(&c, 4, 1, 1, 8, &t);
    dense = plait_model_parameters(&c.model) - experts;
    is(t.bytes[PLAIT_DP], 4 * (dense + experts) / 4,
       "gradients of all experts");
    traffic_of(&c, 4, 1, 8, 8, &t);
    is(t.bytes[PLAIT_DP], 4 * dense / 4,
       "those of experts that one rank alone has are not summed");
    traffic_of(&c, 4, 1, 2, 8, &t);
    /* 3/4 of half of the experts among 4 replicas, 7/8 of a sum among 8 */
    is(t.bytes[PLAIT_DP] * 7 / 8, 4 * (dense * 7 / 8 + experts / 2 * 3 / 4) / 4,
       "experts on two ranks have half as many replicas");
    is(t.bytes[PLAIT_EP], 2 * 32 * row, "each tp rank sends all rows");
    c.parallel.sequence = true;
    traffic_of(&c, 4, 1, 2, 8, &t);
    is(t.bytes[PLAIT_EP], 2 * 32 * row, "... also with sequence parallelism");
    c.framework = PLAIT_FRAMEWORK_MEGATRON;
    traffic_of(&c, 4, 1, 2, 8, &t);
    is(t.bytes[PLAIT_EP], 2 * 32 * row / 4, "... with which Megatron's do not");
    traffic_of(&c, 8, 2, 1, 1, &t);
    is(t.bytes[PLAIT_CP], 2 * 2 * 16 * 8.0,
       "a tp rank has a whole head of keys and values at least");
    rounds = t.calls[PLAIT_CP] / 3;
    c.framework = PLAIT_FRAMEWORK_PLAIT;
    traffic_of(&c, 8, 2, 1, 1, &t);
    is(t.calls[PLAIT_CP], 4 * rounds,
       "plait-train sends their gradients in fp32, twice the bytes of bf16");
    c.sync.mode = PLAIT_SYNC_DILOCO;
    c.sync.gradients = PLAIT_SYNC_FP8;
    traffic_of(&c, 4, 1, 1, 8, &t);
    is(t.bytes[PLAIT_DP] * 2 * 7 / 8, 7 * (dense + experts) / 4,
       "of eight replicas' codes each receives those of seven");
}

int main(void)
{
    plait_gpu_type_find("a100-80g", &gpu, NULL);
    test_rings();
    test_alltoall();
    test_ring_of_leaves();
    test_traffic();
    hierarchical();
    buckets();
    turns();
    chunks();
    return done_testing();
}
