/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/philox.h"
#include "model_util.h"
#include "runtime/model/internal.h"
#include "tap.h"

/* Random123's known answers for philox4x32-10. */
static void test_philox(void)
{
    static const struct {
        uint64_t key, low, high;
        uint32_t out[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         UINT64_MAX,
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x85a308d3243f6a88,
         0x0370734413198a2e,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint32_t x[4];

        plait_philox(known[i].key, known[i].low, known[i].high, x);
        ok(memcmp(x, known[i].out, sizeof(x)) == 0, "philox known answer %zu",
           i);
    }
}

static float *values(const struct plait_tensor *t)
{
    float *v = malloc(t->count * sizeof(*v));

    if (!v)
        abort();
    plait_model_init_tensor(t, 7, 0, t->count, v);
    return v;
}

/* Whether the shard `p` equals its part of `t`, and padding is 0. */
static int same(const struct plait_tensor *t, const float *v,
                const struct plait_tensor *p, const float *pv)
{
    size_t row0 = p->tp_axis == 0 ? p->local_first : 0;
    size_t col0 = p->tp_axis == 1 ? p->local_first : 0;

    for (size_t i = 0; i < p->local_shape[0]; i++)
        for (size_t j = 0; j < p->local_shape[1]; j++) {
            float want = 0, got = pv[i * p->local_shape[1] + j];

            if (row0 + i < t->shape[0])
                want = v[(row0 + i) * t->shape[1] + col0 + j];
            if (memcmp(&want, &got, sizeof(want)) != 0)
                return 0;
        }
    return 1;
}

/* Elements of the whole tensor in the shards of all ranks, without padding;
 * replicated elements count several times. */
static size_t held(const struct plait_tensor *p)
{
    size_t rows = p->local_shape[0];

    if (p->tp_axis == 0 && p->local_first + rows > p->shape[0])
        rows = p->local_first < p->shape[0] ? p->shape[0] - p->local_first : 0;
    return rows * p->local_shape[1];
}

static void test_shards(enum plait_family family, int tp, int pp, int mtp)
{
    struct plait_job_config config;
    struct plait_mesh one, mesh;
    struct plait_error err;
    struct plait_model *whole;
    size_t elements = 0, total = 0;
    int equal = 1, known = 1, parameters = 1;

    small_config(&config, family);
    config.model.mtp_layers = mtp;
    place(&one, 1, 0, 1, 0);
    whole = plait_model_create(&config, &one, &err);
    for (int r = 0; r < tp * pp; r++) {
        struct plait_model *m;

        place(&mesh, tp, r % tp, pp, r / tp);
        m = plait_model_create(&config, &mesh, &err);
        parameters &= m->parameters == whole->parameters;
        for (int i = 0; i < m->ntensors; i++) {
            const struct plait_tensor *p = &m->tensors[i];
            const struct plait_tensor *t = find_tensor(whole, p->name);

            if (!t) {
                known = 0;
                continue;
            }
            float *v = values(t), *pv = values(p);

            equal &= same(t, v, p, pv);
            if (!p->tied || mesh.coord.at[PLAIT_PP] == 0)
                elements += held(p) * 840 / p->tp_replicas;
            free(v);
            free(pv);
        }
        plait_model_destroy(m);
    }
    for (int i = 0; i < whole->ntensors; i++)
        total += whole->tensors[i].shape[0] * whole->tensors[i].shape[1];
    ok(known, "family %d, tp %d, pp %d, mtp %d: names of the whole model",
       family, tp, pp, mtp);
    ok(equal, "shards hold the whole model's values");
    ok(elements == total * 840, "every element is held once per replica");
    ok(parameters && whole->parameters == (int64_t)total,
       "%lld parameters, whatever the layout", (long long)whole->parameters);
    plait_model_destroy(whole);
}

/* Any run of a shard's elements equals that part of the whole shard. */
static void test_runs(void)
{
    static const size_t lengths[] = {1, 3, 7, 64, 129, 1000};
    struct plait_job_config config;
    struct plait_error err;
    struct plait_mesh mesh;
    struct plait_model *m;
    int equal = 1;

    small_config(&config, PLAIT_GPT2);
    place(&mesh, 2, 1, 1, 0);
    m = plait_model_create(&config, &mesh, &err);
    for (int i = 0; i < m->ntensors; i++) {
        const struct plait_tensor *t = &m->tensors[i];
        float *all = values(t), part[1000];
        size_t at = 0, n;

        for (int k = 0; at < t->count; k++, at += n) {
            n = lengths[k % 6] < t->count - at ? lengths[k % 6] : t->count - at;
            plait_model_init_tensor(t, 7, at, n, part);
            equal &= memcmp(part, all + at, n * sizeof(*part)) == 0;
        }
        free(all);
    }
    ok(equal, "a part of a shard is made without the rest");
    plait_model_destroy(m);
}

static void test_regions(void)
{
    struct plait_job_config config;
    struct plait_mesh mesh;
    struct plait_error err;
    struct plait_model *m;
    const struct plait_tensor *q, *k, *v;
    size_t at = 0;
    int good = 1;

    small_config(&config, PLAIT_LLAMA);
    place(&mesh, 2, 1, 1, 0);
    m = plait_model_create(&config, &mesh, &err);
    for (int i = 0; i < m->nregions; i++) {
        good &= m->regions[i].begin == at && m->regions[i].count % 64 == 0;
        good &= m->regions[i].block == i;
        at += m->regions[i].count;
    }
    ok(good && at == m->count, "regions lie side by side on multiples of 64");
    good = 1;
    for (int i = 0; i < m->ntensors; i++) {
        const struct plait_tensor *t = &m->tensors[i];

        good &= t->offset + t->count <= m->regions[t->region].count;
        if (i && t[-1].region == t->region)
            good &= t[-1].offset + t[-1].count <= t->offset;
    }
    ok(good, "tensors do not overlap");
    q = find_tensor(m, "layers.2.attention.q.weight");
    k = find_tensor(m, "layers.2.attention.k.weight");
    v = find_tensor(m, "layers.2.attention.v.weight");
    ok(q && k && v && q->offset + q->count == k->offset &&
           k->offset + k->count == v->offset,
       "q, k and v are one matrix");
    ok(k && k->local_first == 6 && k->local_shape[0] == 6 &&
           k->tp_replicas == 1,
       "each of 2 ranks has one of 2 kv heads");
    plait_model_destroy(m);
    place(&mesh, 4, 1, 1, 0);
    m = plait_model_create(&config, &mesh, &err);
    k = find_tensor(m, "layers.0.attention.k.weight");
    ok(k && k->local_first == 0 && k->local_shape[0] == 6 &&
           k->tp_replicas == 2,
       "ranks 0 and 1 of 4 share kv head 0");
    plait_model_destroy(m);
}

static void test_distribution(void)
{
    struct plait_job_config config;
    struct plait_mesh mesh;
    struct plait_error err;
    struct plait_model *m;
    const struct plait_tensor *t;
    double sum = 0, squares = 0;
    float *v;

    small_config(&config, PLAIT_GPT2);
    place(&mesh, 1, 0, 1, 0);
    m = plait_model_create(&config, &mesh, &err);
    t = find_tensor(m, "layers.1.mlp.down.weight");
    v = values(t);
    for (size_t i = 0; i < t->count; i++) {
        sum += v[i];
        squares += (double)v[i] * v[i];
    }
    /* 9216 elements: the mean is within 5 / sqrt(9216) deviations. */
    ok(fabs(sum / t->count) < 0.02 / sqrt(8) * 5 / 96, "mean 0");
    ok(fabs(sqrt(squares / t->count) / (0.02 / sqrt(8)) - 1) < 0.04,
       "residual projections have deviation 0.02 / sqrt(2L)");
    free(v);
    plait_model_destroy(m);
}

/* Whether the stages cover all layers, with at least one layer each. A large
 * head may be all that the last stage has. */
static int check_cover(const struct plait_job_config *c, int n)
{
    int at = 0, first, count, good = 1;

    for (int s = 0; s < n; s++) {
        bool empty = (s == n - 1 && n > c->model.layers) ||
                     (s == 0 && n > c->model.layers + 1);
        bool may = n > 1 && s == n - 1 && c->model.vocab > 1000;

        plait_model_stage(c, n, s, &first, &count);
        good &= first == at && (empty ? count == 0 : count >= !may);
        at += count;
    }
    return good && at == c->model.layers;
}

static void test_stages(void)
{
    struct plait_job_config c = {.model = {.family = PLAIT_GPT2,
                                           .layers = 12,
                                           .hidden = 768,
                                           .heads = 12,
                                           .kv_heads = 12,
                                           .ffn = 3072,
                                           .vocab = 50304,
                                           .seq_len = 1024}};
    int good = 1;

    for (int i = 1; i <= 26; i++) {
        c.model.layers = (i + 1) / 2;
        c.model.vocab = i % 2 ? 50304 : 257;
        for (int n = 1; n <= c.model.layers + 2; n++)
            good &= check_cover(&c, n);
    }
    ok(good, "stages cover the layers, each holds one or more but for the "
             "head's and the embedding's where there are too few");
    c.model.layers = 12;
    c.model.vocab = 50304;
    int first, count;
    plait_model_stage(&c, 3, 2, &first, &count);
    ok(first == 11, "GPT-2's head leaves the last of 3 stages one layer");
    plait_model_stage(&c, 4, 3, &first, &count);
    ok(first == 12 && count == 0, "and the last of 4 none");
    c.model.vocab = 257;
    plait_model_stage(&c, 4, 3, &first, &count);
    ok(first == 9, "a small vocabulary leaves it three of 12");
    c.model.vocab = 50304;
    c.model.experts = 4;
    c.model.experts_top_k = 1;
    plait_model_stage(&c, 3, 2, &first, &count);
    int without = count;
    c.model.shared_experts = 6;
    plait_model_stage(&c, 3, 2, &first, &count);
    ok(count > without,
       "beside layers with shared experts the head takes less: %d layers, "
       "not %d",
       count, without);
}

static void test_refused(void)
{
    static const struct {
        int tp, pp, heads, kv, ffn;
        const char *says;
    } bad[] = {
        {3, 1, 8, 8, 192, "model.heads 8 is not divisible by tp 3"},
        {1, 7, 8, 8, 192, "model.layers 4 must be at least 5, pp 7"},
        {4, 1, 8, 8, 190, "model.ffn 190 is not divisible by tp 4"},
        {4, 1, 24, 6, 192, "model.kv_heads 6 and tp 4"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct plait_job_config config;
        struct plait_mesh mesh;
        struct plait_error err = {""};

        small_config(&config, PLAIT_LLAMA);
        config.model.heads = bad[i].heads;
        config.model.kv_heads = bad[i].kv;
        config.model.ffn = bad[i].ffn;
        place(&mesh, bad[i].tp, 0, bad[i].pp, 0);
        ok(!plait_model_create(&config, &mesh, &err) &&
               strstr(err.text, bad[i].says),
           "refused: %s", err.text);
    }
}

int main(void)
{
    test_philox();
    test_shards(PLAIT_GPT2, 2, 1, 0);
    test_shards(PLAIT_GPT2, 4, 2, 0);
    test_shards(PLAIT_GPT2, 8, 3, 0);
    test_shards(PLAIT_LLAMA, 2, 4, 0);
    test_shards(PLAIT_LLAMA, 4, 1, 0);
    test_shards(RICH_LLAMA, 4, 1, 0);
    test_shards(LATENT_LLAMA, 4, 2, 0);
    test_shards(DIRECT_LLAMA, 2, 1, 0);
    test_shards(PLAIT_GPT2, 2, 2, 1);
    test_shards(PLAIT_LLAMA, 2, 4, 1);
    test_shards(PLAIT_LLAMA, 4, 1, 1);
    test_runs();
    test_regions();
    test_distribution();
    test_stages();
    test_refused();
    return done_testing();
}
