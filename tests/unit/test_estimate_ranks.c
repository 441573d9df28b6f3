/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks share: state, messages, and the cores of a node. */
#include <math.h>
#include <time.h>

#include "estimate_rows.h"
#include "tap.h"
#include "topology/predict/auto.h"

static void test_zero(void)
{
    struct plait_estimate e[4];
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;
    double weights;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[0], &c, &l);
    for (int zero = 0; zero < 4; zero++) {
        c.parallel.zero = zero;
        plait_estimate(&c, &l, &gpu, &e[zero], NULL);
    }
    weights = e[0].parameters;
    ok(near(e[0].memory.weights + e[0].memory.gradients + e[0].memory.optimizer,
            18 * weights, 1e-3),
       "18 bytes a parameter without ZeRO");
    ok(near(e[1].memory.optimizer, 12 * weights / 32, 1e-3) &&
           near(e[1].memory.gradients, 4 * weights, 1e-3),
       "stage 1 divides the optimizer");
    ok(near(e[2].memory.gradients, 4 * weights / 32, 1e-3) &&
           near(e[2].memory.weights, 2 * weights, 1e-3),
       "stage 2 divides the gradients");
    ok(near(e[3].memory.weights, 2 * weights / 32, 1e-3),
       "stage 3 divides the weights");
}

/* Each rank of a tp group sends what plait_transformer_boundary() says. */
static void test_messages(void)
{
    double bytes = 2 * rows[4].micro * 2048.0 * rows[4].hidden;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_estimate e;
    struct plait_layout l;

    plait_gpu_type_find("a100-80g", &gpu, NULL);
    make(&rows[4], &c, &l);
    for (int sequence = 0; sequence < 2; sequence++) {
        c.parallel.sequence = sequence;
        plait_estimate(&c, &l, &gpu, &e, NULL);
        ok(near(e.axis_s[PLAIT_PP] / (2 * e.microbatches),
                gpu.nic_alpha + bytes / (sequence ? 8 : 1) / gpu.nic_bw, 1e-9),
           sequence ? "with sequence parallelism its rows of a message"
                    : "each of 8 tp ranks sends all of a message");
    }
}

/* On nodes of 8, `dp` replicas with as many micro-batches each. */
static double sharded(enum plait_shard_group group, int dp,
                      struct plait_estimate *e)
{
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[0], &c, &l);
    c.parallel.shard_group = group;
    c.parallel.zero = 1;
    c.train.global_batch = 16 * dp;
    l.size[PLAIT_DP] = dp;
    plait_estimate(&c, &l, &gpu, e, NULL);
    return e->dp_hidden_s;
}

/* A node that has a whole replica sums and gathers inside itself, and each rank
 * sums its eighth with those of the other nodes. Of 26 buckets the last is not
 * hidden. */
static void test_shard_group(void)
{
    struct plait_estimate all, node;
    double inside = sharded(PLAIT_SHARD_ALL, 8, &all), across, bytes;
    struct plait_gpu_type gpu;

    ok(sharded(PLAIT_SHARD_NODE, 8, &node) == inside &&
           node.step_s == all.step_s,
       "a node's ranks are all there are on one node");
    plait_gpu_type_find("h100", &gpu, NULL);
    across = sharded(PLAIT_SHARD_NODE, 32, &node) - inside;
    bytes = 2 * node.parameters / 8; /* of fp16 */
    ok(near(across,
            25.0 / 26 *
                (26 * 2 * 4 * gpu.nic_alpha + 2 * 3.0 / 4 * bytes / gpu.nic_bw),
            1e-3),
       "%.4f s in a node, and %.4f s across four", inside, across);
    ok(near(node.optimizer_s, all.optimizer_s, 1e-9),
       "each rank updates an eighth, as on one node");
}

static double gathering(int zero, int pp, int micro, enum plait_graph_use use,
                        double noise)
{
    struct plait_estimate e;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[1], &c, &l);
    c.parallel.zero = zero;
    c.train.micro_batch = 1;
    c.train.global_batch = 4 * micro;
    c.train.graph = use;
    c.train.noise = noise;
    l.size[PLAIT_TP] = 1;
    l.size[PLAIT_PP] = pp;
    l.size[PLAIT_DP] = 4;
    if (plait_estimate(&c, &l, &gpu, &e, NULL) < 0)
        return -1;
    return e.dp_hidden_s;
}

/* New weights are gathered behind the next step's forward where the runtime
 * does so: test_graph_capture.c has its decisions. */
static void test_gathers(void)
{
    double on = gathering(1, 1, 4, PLAIT_GRAPH_ON, 0);

    ok(on > 0 && gathering(1, 1, 4, PLAIT_GRAPH_AUTO, 0) > on &&
           gathering(1, 1, 4, PLAIT_GRAPH_OFF, 0) > on,
       "gathers are hidden, but not in a graph of the whole step");
    on = gathering(1, 1, 1, PLAIT_GRAPH_ON, 0);
    ok(gathering(1, 1, 1, PLAIT_GRAPH_AUTO, 0) == on &&
           gathering(1, 1, 1, PLAIT_GRAPH_AUTO, 0.1) > on,
       "with one micro-batch only where no graph holds it");
    on = gathering(2, 2, 4, PLAIT_GRAPH_ON, 0);
    ok(on > 0 && gathering(2, 2, 4, PLAIT_GRAPH_AUTO, 0) == on &&
           gathering(2, 2, 4, PLAIT_GRAPH_OFF, 0) > on,
       "with ZeRO 2 and recorded stages they are not");
}

/* What the fullest owner of SOAP's matrices keeps, with two ranks, and found in
 * no time for many layers and ranks. */
static void test_owners(void)
{
    double h = 4096, f = 4 * h, square = h * h;
    struct plait_estimate one, two;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;
    clock_t start = clock();

    plait_gpu_type_find("b300", &gpu, NULL);
    make(&rows[2], &c, &l);
    c.optim.kind = PLAIT_OPTIM_SOAP;
    c.optim.max_dim = 8192;
    c.model.layers = 1;
    l.size[PLAIT_TP] = l.size[PLAIT_DP] = 1;
    plait_estimate(&c, &l, &gpu, &one, NULL);
    l.size[PLAIT_DP] = 2;
    plait_estimate(&c, &l, &gpu, &two, NULL);
    /* Of the mlp's two matrices, with one square each, a rank gets one, and of
     * attention's four, with two squares, two. */
    ok(near(one.memory.optimizer - two.memory.optimizer,
            4 * 2 * (h * f + square + 2 * 3 * square), 1e-9),
       "two ranks own half of a layer's matrices: %.3f GB less",
       (one.memory.optimizer - two.memory.optimizer) / 1e9);
    c.model.layers = 36;
    c.train.global_batch = 16 * 131072;
    l.size[PLAIT_DP] = 131072;
    ok(plait_estimate_largest(&c, &l, &gpu) > 0 &&
           clock() - start < 20 * CLOCKS_PER_SEC,
       "the deepest model on 131,072 ranks is found");
}

/* The step time of row 0's model, or of a deeper part of it, on so many
 * cores. */
static double on_cores(int dp, int pp, double cores, int per_node,
                       struct plait_estimate *e)
{
    struct plait_job_config c;
    struct plait_layout l;
    struct plait_gpu_type cpu;
    struct plait_error err;

    make(&rows[0], &c, &l);
    plait_gpu_type_find("cpu", &cpu, &err);
    plait_gpu_type_set_cores(&cpu, cores);
    cpu.per_node = cpu.domain = per_node;
    l.size[PLAIT_DP] = dp;
    l.size[PLAIT_PP] = pp;
    c.train.micro_batch = 1;
    c.train.global_batch = 8;
    c.train.precision = PLAIT_FP32;
    if (plait_estimate(&c, &l, &cpu, e, &err) == 0)
        return e->step_s;
    diag("%s", err.text);
    return NAN;
}

static double all_parts(const struct plait_estimate *e)
{
    double sum = e->matmul_s + e->attention_s + e->elementwise_s + e->launch_s +
                 e->head_s + e->bubble_s + e->optimizer_s + e->offload_s +
                 e->straggler_s + e->cores_s;

    for (int i = 0; i < PLAIT_NAXES; i++)
        sum += e->axis_s[i];
    return sum;
}

/* Ranks of a node share its cores. */
static void test_shared_cores(void)
{
    struct plait_estimate one, two, four, apart, pipe;
    double alone = on_cores(1, 1, 64, 1, &one), step;

    ok(near(one.matmul_s * 32, (on_cores(1, 1, 2, 1, &two), two.matmul_s),
            1e-9) &&
           one.crowded == 1,
       "2 cores take 32 times as long as 64, which take %.2f s", alone);
    on_cores(4, 1, 64, 1, &apart);
    ok(near(apart.matmul_s, one.matmul_s / 4, 1e-9) && apart.crowded == 1,
       "four ranks on nodes of their own share nothing");
    on_cores(2, 1, 2, 2, &two);
    on_cores(4, 1, 2, 4, &four);
    ok(near(two.matmul_s, 2 * four.matmul_s, 1e-9) && four.crowded > 1.9 &&
           four.step_s > 0.95 * two.step_s,
       "four ranks on two cores get no more done than two: %.3f times as long "
       "as on four",
       four.crowded);
    ok(near(all_parts(&four), four.step_s, 1e-9), "and its parts add up");
    ok(one.launch_s > 0 && four.launch_s == 0,
       "a rank of one thread waits for no others: %.4f s of 64", one.launch_s);
    step = on_cores(1, 4, 2, 4, &pipe);
    ok(pipe.crowded > 1 && near(all_parts(&pipe), step, 1e-9) &&
           pipe.cores_s > 0 && pipe.mfu < 1,
       "a pipeline's ranks leave their cores to others while they wait: "
       "%.2f times",
       pipe.crowded);
    ok(near(four.mfu * four.step_s, pipe.mfu * pipe.step_s, 1e-9),
       "MFU is of the node's peak");
}

int main(void)
{
    test_zero();
    test_messages();
    test_shard_group();
    test_gathers();
    test_owners();
    test_shared_cores();
    return done_testing();
}
