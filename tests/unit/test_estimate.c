/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "tap.h"
#include "topology/plan/cost.h"
#include "topology/predict/auto.h"

/* Table 1 of D. Narayanan et al., "Efficient Large-Scale Language Model
 * Training on GPU Clusters Using Megatron-LM", SC21: A100-80G, sequence 2048,
 * vocabulary 51200, fp16, full recompute, no overlap of gradients. test_records
 * compares with the speeds that they measured. */
static const struct row {
    double billions;
    int hidden, layers, heads, tp, pp, micro, global, gpus, chunks;
} rows[] = {
    {1.7, 2304, 24, 24, 1, 1, 16, 512, 32, 1},
    {3.6, 3072, 30, 32, 2, 1, 16, 512, 64, 1},
    {7.5, 4096, 36, 32, 4, 1, 16, 512, 128, 1},
    {18.4, 6144, 40, 48, 8, 1, 8, 1024, 256, 1},
    {39.1, 8192, 48, 64, 8, 2, 4, 1536, 512, 1},
    {76.1, 10240, 60, 80, 8, 4, 2, 1792, 1024, 3},
    {145.6, 12288, 80, 96, 8, 8, 2, 2304, 1536, 2},
    {310.1, 16384, 96, 128, 8, 16, 1, 2160, 1920, 2},
    {529.6, 20480, 105, 128, 8, 35, 1, 2520, 2520, 3},
    {1008, 25600, 128, 160, 8, 64, 1, 3072, 3072, 1},
};
enum { NROWS = sizeof(rows) / sizeof(rows[0]) };

static void make(const struct row *row, struct plait_job_config *c,
                 struct plait_layout *l)
{
    memset(c, 0, sizeof(*c));
    c->model = (struct plait_model_config){.family = PLAIT_GPT2,
                                           .layers = row->layers,
                                           .hidden = row->hidden,
                                           .heads = row->heads,
                                           .kv_heads = row->heads,
                                           .ffn = 4 * row->hidden,
                                           .vocab = 51200,
                                           .seq_len = 2048,
                                           .tie_embeddings = true};
    c->parallel.schedule =
        row->chunks > 1 ? PLAIT_SCHEDULE_INTERLEAVED : PLAIT_SCHEDULE_1F1B;
    c->parallel.virtual_stages = row->chunks;
    c->parallel.recompute = PLAIT_RECOMPUTE_FULL;
    c->parallel.bucket_mib = 25;
    c->parallel.grad_reduce = PLAIT_GRAD_BF16; /* 2 bytes, as in fp16 */
    c->train.precision = PLAIT_FP16;
    c->train.global_batch = row->global;
    c->train.micro_batch = row->micro;
    plait_layout_init(l);
    l->size[PLAIT_TP] = row->tp;
    l->size[PLAIT_PP] = row->pp;
    l->size[PLAIT_DP] = row->gpus / (row->tp * row->pp);
}

static int near(double a, double b, double share)
{
    return fabs(a - b) <= share * fabs(b);
}

static void test_formulas(void)
{
    struct plait_gpu_type gpu;
    struct plait_estimate e;
    struct plait_job_config c;
    struct plait_layout l;
    double h = 12288, s = 2048, V = 51200, layers = 80, B = 2304;

    plait_gpu_type_find("a100-80g", &gpu, NULL);
    make(&rows[6], &c, &l);
    ok(plait_estimate(&c, &l, &gpu, &e, NULL) == 0, "145.6B is estimated");
    ok(near(e.parameters, 145.6e9, 0.002), "%.1f billion parameters",
       e.parameters / 1e9);
    /* the closed form counts recompute for the head too */
    ok(near(e.flops_per_step,
            96 * B * s * layers * h * h *
                (1 + s / (6 * h) + V / (16 * layers * h)),
            1e-6),
       "FLOPs per step are 96 B s l h^2 (1 + s/6h + V/16lh)");
    ok(e.memory.total < gpu.memory,
       "the published layout fits in 80 GB "
       "(%.1f)",
       e.memory.total / 1e9);
    c.parallel.recompute = PLAIT_RECOMPUTE_NONE;
    c.parallel.schedule = PLAIT_SCHEDULE_1F1B;
    c.parallel.virtual_stages = 1;
    plait_estimate(&c, &l, &gpu, &e, NULL);
    /* test_memory.c checks it to the byte; this is most of it: 4 hidden states
     * a layer, and 3 + 1 + 4 + 4 split over tp, of p micro-batches */
    ok(near(e.memory.activations, 8 * 10 * s * 2 * 2 * h * (4 + 12.0 / 8),
            0.02),
       "activations: 2 s b h (4 + 12/t) a layer, p in flight");
    c.parallel.sequence = true;
    plait_estimate(&c, &l, &gpu, &e, NULL);
    ok(near(e.memory.activations, 8 * 10 * s * 2 * 2 * h * 16 / 8, 0.03),
       "activations: 2 s b h 16/t with sequence parallel");
    c.parallel.recompute = PLAIT_RECOMPUTE_FULL;
    plait_estimate(&c, &l, &gpu, &e, NULL);
    /* one layer's activations (15) and work space (10), two gathered hidden
     * states */
    ok(near(e.memory.activations, (8 * 10 + 25 + 2 * 8) * s * 2 * 2 * h / 8,
            0.01),
       "activations: the hidden state with full recompute, and one layer");
}

/* Of what predicts a token further nothing is recomputed; and a tensor-parallel
 * rank joins its own rows, and has traffic for it. */
static void test_mtp(void)
{
    double ideal, head[2], layer[2], h = rows[2].hidden;
    struct plait_estimate with, without;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("a100-80g", &gpu, NULL);
    make(&rows[2], &c, &l);
    for (int sequence = 0; sequence < 2; sequence++) {
        c.parallel.sequence = sequence;
        c.model.mtp_layers = 0;
        plait_estimate(&c, &l, &gpu, &without, NULL);
        c.model.mtp_layers = 1;
        plait_estimate(&c, &l, &gpu, &with, NULL);
        head[sequence] = with.head_s - without.head_s;
        layer[sequence] = without.elementwise_s / c.model.layers;
    }
    ok(near(with.flops_per_step - without.flops_per_step,
            512 * 2048 * (with.flops_per_token - without.flops_per_token),
            1e-9),
       "a module with full recompute: %g FLOPs a step, thrice its forward",
       with.flops_per_step - without.flops_per_step);
    ideal = 3 * (512 / 32.0) * 2048 * 4 * h * h * (1 - 1 / 4.0) / gpu.flops16;
    ok(head[0] - layer[0] - (head[1] - layer[1]) > ideal,
       "a module's join of a rank's own rows: %.4f s less, %.4f s of them "
       "elementwise, at least %.4f s of its product",
       head[0] - head[1], layer[0] - layer[1], ideal);
    ok(head[1] > without.axis_s[PLAIT_TP] / c.model.layers,
       "%.4f s of a module, with the traffic of a layer", head[1]);
}

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

static void test_tf32(void)
{
    struct plait_estimate full, fast, half;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[0], &c, &l);
    c.train.precision = PLAIT_FP32;
    plait_estimate(&c, &l, &gpu, &full, NULL);
    c.train.precision = PLAIT_TF32;
    plait_estimate(&c, &l, &gpu, &fast, NULL);
    c.train.precision = PLAIT_BF16;
    plait_estimate(&c, &l, &gpu, &half, NULL);
    ok(fast.memory.total == full.memory.total, "TF32 takes the memory of fp32");
    ok(half.step_s < fast.step_s && fast.step_s < full.step_s,
       "its step lies between bf16's and fp32's: %.3g < %.3g < %.3g",
       half.step_s, fast.step_s, full.step_s);
}

static void precise(const char *type, enum plait_precision precision,
                    struct plait_estimate *e)
{
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find(type, &gpu, NULL);
    make(&rows[2], &c, &l);
    c.train.precision = precision;
    plait_estimate(&c, &l, &gpu, e, NULL);
}

/* A GPT's layer has 12 h^2 weights. */
static void test_fp8(void)
{
    double h = rows[2].hidden;
    double tp = rows[2].tp, tokens = 16 * 2048., passes, bytes;
    struct plait_estimate half, fast;
    struct plait_gpu_type gpu;

    precise("h100", PLAIT_BF16, &half);
    precise("h100", PLAIT_FP8, &fast);
    plait_gpu_type_find("h100", &gpu, NULL);
    ok(near(fast.matmul_s / half.matmul_s,
            989 * gpu.matmul / (1979 * gpu.matmul8), 1e-9) &&
           fast.attention_s == half.attention_s,
       "fp8 has its rate in the linears alone: %.3g s of products, not %.3g",
       fast.matmul_s, half.matmul_s);
    ok(fast.head_s == half.head_s && fast.step_s < half.step_s &&
           near(fast.mfu * fast.step_s, half.mfu * half.step_s, 1e-9),
       "the head has not; MFU is of the same peak");
    /* Of the linears' operands, 4 h are whole on each tp rank, and 3 h + h + 4
     * h + 4 h split. */
    passes = 4. * rows[2].layers * rows[2].global / 32 / 16;
    bytes = 6. / 3 * tokens * (4 * h + 12 * h / tp);
    ok(near((fast.elementwise_s - half.elementwise_s) * 3350e9 * gpu.stream,
            passes * bytes, 1e-9),
       "each operand is read and written");
    bytes = 6 * 12 * h * h / tp * rows[2].layers / rows[2].pp;
    ok(near((fast.optimizer_s - half.optimizer_s) * 3350e9 * gpu.stream, bytes,
            1e-9),
       "weights once a step, in two orders");
    precise("a100-80g", PLAIT_BF16, &half);
    precise("a100-80g", PLAIT_FP8, &fast);
    ok(fast.matmul_s == half.matmul_s && fast.step_s > half.step_s,
       "a GPU without fp8 wins nothing");
}

/* The linears of a GPT-2 layer have 12 h^2 weights. */
static void test_fp8_weights(void)
{
    struct plait_estimate whole, half, parts[2];
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;
    double codes;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[0], &c, &l);
    c.model.family = PLAIT_GPT2;
    c.model.kv_heads = c.model.heads;
    c.model.ffn = 4 * c.model.hidden;
    codes = 2.0 * 12 * c.model.hidden * c.model.hidden * c.model.layers;
    for (int zero = 0; zero < 4; zero += 3) {
        c.parallel.zero = zero;
        c.train.precision = PLAIT_BF16;
        plait_estimate(&c, &l, &gpu, zero ? &parts[0] : &half, NULL);
        c.train.precision = PLAIT_FP8;
        plait_estimate(&c, &l, &gpu, zero ? &parts[1] : &whole, NULL);
    }
    ok(near(whole.memory.weights - half.memory.weights, codes, 1e-9),
       "fp8 keeps two bytes a weight of the layers' linears");
    ok(parts[0].memory.weights == parts[1].memory.weights,
       "but not with ZeRO 3");
    ok(near((parts[1].elementwise_s - parts[0].elementwise_s -
             (whole.elementwise_s - half.elementwise_s)) *
                3350e9 * gpu.stream,
            5 * codes * 4 / 3 * rows[0].global / 32 / 16, 1e-6) &&
           parts[1].optimizer_s == parts[0].optimizer_s,
       "which rounds weights for each product");
}

static void test_advice(void)
{
    struct plait_advice lines[8];
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;
    int n;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[4], &c, &l);
    n = plait_estimate_advise(&c, &l, &gpu, lines, 8);
    ok(n == 0, "round numbers want no advice");
    c.model.vocab = 128256; /* Llama 3's, over 8 tp ranks */
    n = plait_estimate_advise(&c, &l, &gpu, lines, 8);
    ok(n == 1 && strstr(lines[0].text, "vocab is 128256: pad to 129024; the "
                                       "last 1024 are 75 % empty, so up to "
                                       "0.6 %"),
       "%s", n ? lines[0].text : "no advice");
}

static void refuse(struct plait_job_config *c, struct plait_layout *l,
                   const char *want)
{
    struct plait_error err = {""};
    struct plait_gpu_type gpu;
    struct plait_estimate e;

    plait_gpu_type_find("h100", &gpu, NULL);
    if (!ok(plait_estimate(c, l, &gpu, &e, &err) == -1 &&
                strcmp(err.text, want) == 0,
            "refuses: %s", want))
        diag("got: %s", err.text);
}

static void test_refusals(void)
{
    struct plait_gpu_type gpu;
    struct plait_estimate e;
    struct plait_error err;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[0], &c, &l);
    l.size[PLAIT_TP] = 5;
    refuse(&c, &l, "model.heads 24 is not divisible by tp 5");
    make(&rows[0], &c, &l);
    l.size[PLAIT_PP] = 7;
    l.size[PLAIT_DP] = 1;
    ok(plait_estimate(&c, &l, &gpu, &e, &err) == 0 && e.fullest == 0,
       "stages need not be equal");
    l.size[PLAIT_PP] = 26;
    ok(plait_estimate(&c, &l, &gpu, &e, &err) == 0 && e.memory.total > 0,
       "and the embedding and the head may be alone");
    l.size[PLAIT_PP] = 27;
    refuse(&c, &l,
           "model.layers 24 must be at least 25, pp 27 * parallel.virtual 1 - "
           "2; only the embedding and the head can be stages of their own");
    make(&rows[6], &c, &l);
    c.train.global_batch = 24 * 2 * 45;
    refuse(&c, &l,
           "schedule interleaved: 45 micro-batches are not divisible by pp 8");
    make(&rows[0], &c, &l);
    c.train.global_batch = 500;
    refuse(&c, &l,
           "train.global_batch 500 is not divisible by dp 32 * "
           "train.micro_batch 16; 512 would fit");
}

/* With some layers recomputed or offloaded, which only other software does:
 * between none and all. */
static void test_some_layers(void)
{
    struct plait_estimate none, some, all, away;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[2], &c, &l);
    c.parallel.recompute_layers = 9;
    refuse(&c, &l,
           "parallel.recompute_layers 9 of 36: plait-train recomputes all "
           "layers or none");
    c.framework = PLAIT_FRAMEWORK_MEGATRON;
    plait_estimate(&c, &l, &gpu, &some, NULL);
    c.parallel.recompute_layers = 0;
    plait_estimate(&c, &l, &gpu, &all, NULL);
    c.parallel.recompute = PLAIT_RECOMPUTE_NONE;
    plait_estimate(&c, &l, &gpu, &none, NULL);
    ok(none.step_s < some.step_s && some.step_s < all.step_s &&
           none.memory.activations > some.memory.activations &&
           some.memory.activations > all.memory.activations,
       "a quarter of the layers recomputed: %.1f of %.1f to %.1f GB",
       some.memory.total / 1e9, all.memory.total / 1e9,
       none.memory.total / 1e9);
    c.parallel.offload = PLAIT_OFFLOAD_ACTIVATIONS;
    c.parallel.offload_layers = 9;
    plait_estimate(&c, &l, &gpu, &away, NULL);
    ok(away.memory.host > 0 && away.memory.total < none.memory.total,
       "a quarter of them offloaded: %.1f GB, and %.1f GB of the host's",
       away.memory.total / 1e9, away.memory.host / 1e9);
}

/* Selective recompute is of norms and activations, and of attention in other
 * software. */
static void test_selective(void)
{
    struct plait_estimate none, selective, full;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[2], &c, &l);
    plait_estimate(&c, &l, &gpu, &full, NULL);
    for (int i = 0; i < 2; i++) {
        c.framework = i ? PLAIT_FRAMEWORK_MEGATRON : PLAIT_FRAMEWORK_PLAIT;
        c.parallel.recompute = PLAIT_RECOMPUTE_NONE;
        plait_estimate(&c, &l, &gpu, &none, NULL);
        c.parallel.recompute = PLAIT_RECOMPUTE_SELECTIVE;
        plait_estimate(&c, &l, &gpu, &selective, NULL);
        ok(none.step_s < selective.step_s && selective.step_s < full.step_s &&
               none.memory.activations > selective.memory.activations &&
               (none.attention_s < selective.attention_s) == i &&
               (none.flops_per_step < selective.flops_per_step) == i,
           "%s, selective: %.1f of %.1f GB of activations, %.2f of %.2f s",
           plait_framework_names[i], selective.memory.activations / 1e9,
           none.memory.activations / 1e9, selective.step_s, none.step_s);
    }
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

/* Columns of all heads, and the share of scores that windows leave. */
static void check_causal(struct plait_job_config *c, struct plait_layout *l,
                         double columns, double share, const char *what)
{
    struct plait_gpu_type gpu;
    struct plait_estimate e;
    double less = 6.0 * c->model.layers * c->model.seq_len * columns * share;

    plait_gpu_type_find("h100", &gpu, NULL);
    c->framework = PLAIT_FRAMEWORK_MEGATRON;
    plait_estimate(c, l, &gpu, &e, NULL);
    ok(e.mfu_causal > 0 &&
           near((1 - e.mfu_causal / e.mfu) * e.flops_per_token, less, 1e-9),
       "%s: half of the scores that count are masked, %.3g of %.3g FLOPs", what,
       less, e.flops_per_token);
}

static void test_causal(void)
{
    struct plait_job_config c;
    struct plait_layout l;

    make(&rows[0], &c, &l);
    check_causal(&c, &l, c.model.hidden, 1, "all scores");
    c.model.family = PLAIT_LLAMA;
    c.model.head_dim = 256;
    check_causal(&c, &l, c.model.heads * 256, 1, "wide heads");
    c.model.sliding_window = 256;
    check_causal(&c, &l, c.model.heads * 256, 15.0 / 64,
                 "windows of an eighth");
    c.model.mla_q = 1536;
    c.model.mla_kv = 512;
    c.model.mla_nope = 128;
    c.model.mla_rope = 64;
    c.model.mla_value = 128;
    c.model.sliding_window = 0;
    check_causal(&c, &l, c.model.heads * (192 + 128) / 2.0, 1, "MLA");
}

/* The scores of chunks, counted row by row; 12000 is not a multiple. */
static void test_chunks(void)
{
    static const int tokens[] = {8192, 12000, 16384, 16385};
    struct plait_model_config m = {
        .family = PLAIT_LLAMA, .layers = 1, .attention_chunk = 8192};

    for (int i = 0; i < 4; i++) {
        double kept = 0, all = tokens[i] * (tokens[i] + 1.0) / 2, share;

        m.seq_len = tokens[i];
        for (int row = 0; row < tokens[i]; row++)
            kept += row % 8192 + 1;
        share = plait_model_reach(&m);
        ok(fabs(share - kept / all) < 1e-4, "chunks of 8192 in %d: %g",
           tokens[i], share);
    }
}

/* With a head so large that the last stage is the slowest and fullest. */
static double offloaded(enum plait_offload offload, int pp,
                        struct plait_estimate *e)
{
    static int64_t stages[] = {9, 9, 9, 9};
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    make(&rows[2], &c, &l);
    c.parallel.recompute = PLAIT_RECOMPUTE_NONE;
    c.parallel.offload = offload;
    c.model.vocab = 400000;
    c.model.tie_embeddings = false;
    c.parallel.stages.at = stages;
    c.parallel.stages.n = pp > 1 ? pp : 0;
    l.size[PLAIT_PP] = pp;
    l.size[PLAIT_DP] /= pp;
    plait_estimate(&c, &l, &gpu, e, NULL);
    return e->offload_s;
}

/* What a stage's layers send does not depend on how many micro-batches another
 * rank holds, nor on where the optimizer's state is. */
static void test_offload(void)
{
    struct plait_estimate e;
    double state = offloaded(PLAIT_OFFLOAD_OPTIMIZER, 1, &e);
    double sent = offloaded(PLAIT_OFFLOAD_ACTIVATIONS, 1, &e);
    double both = offloaded(PLAIT_OFFLOAD_BOTH, 1, &e);
    double four = offloaded(PLAIT_OFFLOAD_ACTIVATIONS, 4, &e);

    ok(state > 0 && sent > 0 && near(both, state + sent, 1e-9),
       "offloading both takes %.3f s, what each takes alone", both);
    ok(near(four, sent, 1e-9) && e.fullest == 3 && e.slowest == 3,
       "four stages have a quarter of the layers and four times the batches: "
       "%.3f s, as one has %.3f",
       four, sent);
}

static void make_latent(struct plait_job_config *c, struct plait_layout *l)
{
    make(&rows[6], c, l);
    c->model.family = PLAIT_LLAMA;
    c->model.mla_q = 1536;
    c->model.mla_kv = 512;
    c->model.mla_nope = c->model.mla_value = 128;
    c->model.mla_rope = 64;
    c->parallel.schedule = PLAIT_SCHEDULE_1F1B;
    c->parallel.virtual_stages = 1;
    c->parallel.recompute = PLAIT_RECOMPUTE_NONE;
    c->train.precision = PLAIT_BF16;
}

/* By how much zb-h1 shortens the bubble. */
static double filled(bool latent, bool experts)
{
    struct plait_estimate before, after;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    make_latent(&c, &l);
    if (!latent)
        c.model.mla_kv = c.model.mla_q = 0;
    c.model.experts = experts ? 4 : 0;
    c.model.experts_top_k = 2;
    c.model.dense_layers = latent && experts ? 40 : 0; /* of 80 */
    plait_estimate(&c, &l, &gpu, &before, NULL);
    c.parallel.schedule = PLAIT_SCHEDULE_ZB_H1;
    plait_estimate(&c, &l, &gpu, &after, NULL);
    return before.bubble_s - after.bubble_s;
}

/* What the trainer does not put off fills no bubble; and tp ranks sum the
 * gradients of the latents' matrices and norms. */
static void test_latent(void)
{
    double all = filled(false, false), mlp = filled(true, false);
    double attention = filled(false, true), both = filled(true, true);
    struct plait_estimate once, each;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;
    const double counts[] = {12288 * 1536.0, 12288 * 576.0, 1536, 512};
    double sum = 0;

    ok(both > 0 && attention > 0 && both < mlp && mlp < all && attention < all,
       "zb-h1 fills %.3f s; with latent attention %.3f, with experts %.3f, in "
       "half of the layers with both %.3f",
       all, mlp, attention, both);
    plait_gpu_type_find("h100", &gpu, NULL);
    make_latent(&c, &l);
    c.parallel.zero = 1;
    plait_estimate(&c, &l, &gpu, &once, NULL);
    c.parallel.zero = 2;
    plait_estimate(&c, &l, &gpu, &each, NULL);
    for (int i = 0; i < 4; i++)
        sum +=
            plait_cost_allreduce(8, 4 * counts[i], gpu.link_alpha, gpu.link_bw);
    /* 10 layers, 2304 / 24 / 2 micro-batches */
    ok(near(each.axis_s[PLAIT_TP] - once.axis_s[PLAIT_TP], sum * 10 * 47, 1e-9),
       "with ZeRO 2 the latents' gradients are summed for each micro-batch");
}

/* What drivers and the PCI table call each type; NULL: none is known. */
static const char *const models[][2] = {
    {"Tesla V100-SXM3-32GB", "v100-32g"},
    {"Tesla V100-SXM2-16GB", NULL},
    {"NVIDIA A100-SXM4-40GB", "a100-40g"},
    {"NVIDIA A100 80GB PCIe", "a100-80g"},
    {"NVIDIA H100 80GB HBM3", "h100"},
    {"NVIDIA H200", "h200"},
    {"NVIDIA GH200 480GB", "gh200"},
    {"NVIDIA GH200 144G HBM3e", NULL},
    {"NVIDIA H100 PCIe", "h100-pcie"},
    {"NVIDIA H100 NVL", "h100-nvl"},
    {"NVIDIA H100 64GB HBM2", NULL},
    {"NVIDIA H200 NVL", NULL},
    {"NVIDIA H20", "h20"},
    {"NVIDIA H800", "h800"},
    {"NVIDIA H800 PCIe", NULL},
    {"NVIDIA A100-SXM-64GB", "a100-64g"},
    {"NVIDIA B200", "b200"},
    {"NVIDIA B300 SXM6 AC", "b300"},
    {"NVIDIA GB200", "gb200"},
    {"NVIDIA GB300", "gb300"},
    {"NVIDIA L40S", "l40s"},
    {"NVIDIA L40", NULL},
    {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
    {"Instinct MI250X", "mi250x"},
    {"Instinct MI300A", "mi300a"},
    {"AMD Instinct MI300X OAM", "mi300x"},
    {"Instinct MI325X", "mi325x"},
    {"AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2", "mi250x"},
    {"Instinct MI350X", "mi350x"},
    {"AMD Instinct MI355X", "mi355x"},
    {"Intel(R) Data Center GPU Max 1550", "pvc"},
    {"Intel(R) Data Center GPU Max 1100", NULL},
};

static void test_guesses(void)
{
    bool guessed[PLAIT_NGPU_TYPES] = {false};

    for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
        const char *type = plait_gpu_type_guess(models[i][0]);

        ok(type && models[i][1] ? strcmp(type, models[i][1]) == 0
                                : type == models[i][1],
           "%s is %s", models[i][0], type ? type : "no known type");
        for (int k = 0; type && k < PLAIT_NGPU_TYPES; k++)
            guessed[k] |= strcmp(plait_gpu_types[k].name, type) == 0;
    }
    for (int k = 0; k < PLAIT_NGPU_TYPES; k++)
        ok(guessed[k] || strcmp(plait_gpu_types[k].name, "cpu") == 0,
           "a product above is %s", plait_gpu_types[k].name);
}

static void test_gpu_names(void)
{
    char all[PLAIT_NGPU_TYPES * 17] = "";
    struct plait_gpu_type gpu;
    struct plait_error err;

    for (int i = 0; i < PLAIT_NGPU_TYPES; i++) {
        const char *name = plait_gpu_types[i].name;

        ok(memchr(name, '\0', sizeof(plait_gpu_types[i].name)) != NULL,
           "%.15s has at most 15 letters", name);
        strcat(all, i ? " " : "");
        strcat(all, name);
    }
    ok(strcmp(plait_gpu_type_names(), all) == 0, "the list names all types");
    ok(plait_gpu_type_find("h1000", &gpu, &err) == -1 &&
           strncmp(err.text,
                   "no GPU type \"h1000\"; did you mean h100? There are ",
                   50) == 0 &&
           strcmp(err.text + 50, all) == 0,
       "an unknown GPU type is refused with the list");
}

/* For every published row, --auto finds a layout predicted to be at least as
 * fast, and the published layout fits. */
static void test_auto(void)
{
    for (int i = 0; i < NROWS; i++) {
        struct plait_choices *found;
        struct plait_gpu_type gpu;
        struct plait_estimate e;
        struct plait_job_config c;
        struct plait_layout l, any;

        plait_gpu_type_find("a100-80g", &gpu, NULL);
        make(&rows[i], &c, &l);
        if (c.model.hidden > 20480) /* LayerNorms that Plait has no room for */
            c.framework = PLAIT_FRAMEWORK_MEGATRON;
        plait_estimate(&c, &l, &gpu, &e, NULL);
        plait_layout_init(&any);
        for (int k = 0; k < PLAIT_NAXES; k++)
            any.size[k] = k == PLAIT_EP ? 1 : PLAIT_AUTO;
        found = plait_auto_create(&c, &any, rows[i].gpus, &gpu, 10);
        ok(found && found->n && found->choice[0].estimate.step_s <= e.step_s &&
               e.memory.total <= gpu.memory,
           "auto, %.1fB: %.2f s a step, published layout %.2f s, %.1f GB",
           rows[i].billions,
           found && found->n ? found->choice[0].estimate.step_s : 0, e.step_s,
           e.memory.total / 1e9);
        plait_choices_destroy(found);
    }
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
    test_formulas();
    test_mtp();
    test_zero();
    test_tf32();
    test_fp8();
    test_fp8_weights();
    test_advice();
    test_refusals();
    test_some_layers();
    test_selective();
    test_offload();
    test_latent();
    test_causal();
    test_chunks();
    test_messages();
    test_shard_group();
    test_gathers();
    test_owners();
    test_gpu_names();
    test_guesses();
    test_shared_cores();
    test_auto();
    return done_testing();
}
