/* SPDX-License-Identifier: Apache-2.0 */
/* What a step of a model costs. */
#include <math.h>
#include <string.h>

#include "estimate_rows.h"
#include "tap.h"
#include "topology/plan/cost.h"
#include "topology/predict/auto.h"

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

int main(void)
{
    test_formulas();
    test_mtp();
    test_advice();
    test_refusals();
    test_some_layers();
    test_selective();
    test_offload();
    test_latent();
    test_causal();
    test_chunks();
    test_auto();
    return done_testing();
}
