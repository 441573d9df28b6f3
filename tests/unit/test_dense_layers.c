/* SPDX-License-Identifier: Apache-2.0 */
/* The first layers of a model with experts may have none (model.dense_layers):
 * their work is that of dense layers, and a stage's the mean of both kinds. */
#include <math.h>

#include "llama3_8b.h"
#include "tap.h"
#include "topology/predict/estimate.h"

static struct plait_estimate on(const struct plait_job_config *c)
{
    struct plait_estimate e = {.elementwise_s = NAN};
    struct plait_error err = {""};
    struct plait_gpu_type gpu;
    struct plait_layout l;

    plait_layout_init(&l);
    l.size[PLAIT_TP] = 2;
    l.size[PLAIT_DP] = 4;
    l.size[PLAIT_EP] = c->model.experts ? 4 : 1;
    plait_gpu_type_find("h100", &gpu, NULL);
    if (plait_estimate(c, &l, &gpu, &e, &err) < 0)
        diag("%s", err.text);
    return e;
}

static bool near(double x, double y)
{
    return fabs(x - y) <= 1e-9 * fabs(y);
}

static bool same(const struct plait_estimate *x, const struct plait_estimate *y)
{
    return near(x->matmul_s, y->matmul_s) &&
           near(x->elementwise_s, y->elementwise_s) &&
           near(x->optimizer_s, y->optimizer_s);
}

/* fp8 rounds operands; ZeRO 3 also the weights, at each use. */
static const struct {
    const char *name;
    enum plait_precision precision;
    int zero;
    enum plait_recompute recompute;
} cases[] = {{"bf16", PLAIT_BF16, 1, PLAIT_RECOMPUTE_NONE},
             {"bf16, selective", PLAIT_BF16, 1, PLAIT_RECOMPUTE_SELECTIVE},
             {"fp8", PLAIT_FP8, 1, PLAIT_RECOMPUTE_NONE},
             {"fp8, ZeRO 3", PLAIT_FP8, 3, PLAIT_RECOMPUTE_NONE}};

static void test_case(size_t i)
{
    struct plait_estimate dense, none, half, turns, all;
    struct plait_job_config c;

    llama3_8b(&c);
    c.train.precision = cases[i].precision;
    c.parallel.zero = cases[i].zero;
    c.parallel.recompute = cases[i].recompute;
    dense = on(&c);
    c.model.dense_ffn = c.model.ffn;
    c.model.ffn = 2048;
    c.model.experts = 16;
    c.model.experts_top_k = 4;
    c.model.shared_experts = 1;
    c.model.dense_layers = c.model.layers;
    none = on(&c);
    c.model.dense_layers = c.model.layers / 2;
    half = on(&c);
    c.model.dense_layers = 0;
    c.model.experts_every = 2;
    turns = on(&c);
    c.model.experts_every = 0;
    c.model.dense_ffn = 0;
    all = on(&c);
    ok(same(&none, &dense) && none.axis_s[PLAIT_EP] == 0,
       "%s: layers without experts are dense ones", cases[i].name);
    ok(same(&turns, &half) &&
           near(turns.axis_s[PLAIT_EP], half.axis_s[PLAIT_EP]),
       "%s: ... in turns, too", cases[i].name);
    ok(!near(all.elementwise_s, dense.elementwise_s) &&
           near(half.matmul_s, (all.matmul_s + dense.matmul_s) / 2) &&
           near(half.elementwise_s,
                (all.elementwise_s + dense.elementwise_s) / 2) &&
           all.axis_s[PLAIT_EP] > 0 &&
           near(half.axis_s[PLAIT_EP], all.axis_s[PLAIT_EP] / 2),
       "%s: half of each kind take the mean: %.3f s of %.3f and %.3f",
       cases[i].name, half.elementwise_s, all.elementwise_s,
       dense.elementwise_s);
}

/* A norm over all heads sums a number a row over the tp ranks, for q and for k,
 * forward and backward: 4 sums of 32 KiB in each of 32 layers and 16
 * micro-batches. */
static void test_whole_norms(void)
{
    const double link = 370e9, alpha = 2e-6, bytes = 4 * 8192.0;
    const double sum = 2 * alpha + bytes / link; /* over two ranks */
    struct plait_estimate plain, whole;
    struct plait_job_config c;
    double more;

    llama3_8b(&c);
    c.model.qk_norm = 1;
    plain = on(&c);
    c.model.qk_norm_whole = 1;
    whole = on(&c);
    more = whole.axis_s[PLAIT_TP] - plain.axis_s[PLAIT_TP];
    ok(fabs(more - 4 * 32 * 16 * sum) < 0.01 * more,
       "norms over all heads: %.1f ms more in tp's sums", more * 1e3);
}

int main(void)
{
    test_whole_norms();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        test_case(i);
    return done_testing();
}
