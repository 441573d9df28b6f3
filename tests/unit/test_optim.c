/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/optim/optim.h"
#include "runtime/parallel/shard.h"
#include "tap.h"

/* The optimizer over a model's regions, against AdamW in double for one number
 * at a time. One process. */

#define STEPS 4

static const char yaml[] =
    "model: {family: gpt2, layers: 2, hidden: 32, heads: 4, vocab: 97,\n"
    "        seq_len: 16}\n"
    "optim: {lr: 1e-2, weight_decay: 0.1, clip: 1.0}\n";

static struct plait_job_config *config;
static struct plait_mesh *mesh;
static struct plait_model *model;
static struct plait_optim *optim;
static const struct plait_optim_slice *slices;
static int nslices;

/* The expected value of every number, in the order of the slices. */
struct reference {
    double w, m, v;
};
static struct reference *want;

static float *grad_of(const struct plait_optim_slice *s)
{
    struct plait_region *r = &model->regions[s->tensor->region];

    return r->grad + s->tensor->offset + s->first;
}

static int setup(const char *precision, const char *offload, const char *vocab)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_device *dev = ops->device_create(0, 1);
    const char *set[] = {precision, offload, vocab};
    struct plait_layout layout;
    struct plait_error err = {""};

    plait_layout_init(&layout);
    config = plait_job_config_parse("test", yaml, strlen(yaml), set, 3, &err);
    mesh = plait_mesh_create(
        ops, dev, plait_comm_create(PLAIT_COMM_SELF, ops, dev, NULL, &err),
        &layout, &err);
    model = config && mesh ? plait_model_create(config, mesh, &err) : NULL;
    optim = model ? plait_optim_create(model, &err) : NULL;
    if (!optim || plait_optim_init(optim, 3, &err) < 0)
        return ok(0, "setup: %s", err.text), -1;
    nslices = plait_optim_slices(optim, &slices);
    return 0;
}

static void teardown(void)
{
    const struct plait_ops *ops = mesh->ops;
    struct plait_device *dev = mesh->dev;
    struct plait_comm *world = mesh->world;

    plait_optim_destroy(optim);
    plait_model_destroy(model);
    plait_mesh_destroy(mesh);
    plait_comm_destroy(world);
    ops->device_destroy(dev);
    plait_job_config_destroy(config);
    free(want);
}

static void check_slices(void)
{
    size_t total = 0, i, k = 0;
    int s, ordered = 1;

    for (s = 0; s < nslices; s++)
        total += slices[s].count;
    ok(nslices == model->ntensors, "one slice per tensor");
    for (s = 1; s < nslices; s++)
        ordered &= slices[s].tensor > slices[s - 1].tensor;
    ok(ordered, "in the order of the tensors");
    want = calloc(total, sizeof(*want));
    for (s = 0; s < nslices; s++)
        for (i = 0; i < slices[s].count; i++)
            want[k++].w = slices[s].master[i];
}

static double fill_gradients(int step)
{
    double sum = 0;
    int s;
    size_t i;

    for (s = 0; s < nslices; s++)
        for (i = 0; i < slices[s].count; i++) {
            float g = sinf(step * 7 + s * 3 + i) * (step == 1 ? 1e-4f : 1);

            grad_of(&slices[s])[i] = g;
            sum += (double)g * g;
        }
    return sum;
}

static void reference_step(double lr, double scale, int t)
{
    const struct plait_optim_config *c = &config->optim;
    size_t i, k = 0;
    int s;

    for (s = 0; s < nslices; s++)
        for (i = 0; i < slices[s].count; i++, k++) {
            double g = grad_of(&slices[s])[i] * scale;
            double decay = slices[s].tensor->ndim == 2 ? c->weight_decay : 0;
            struct reference *r = &want[k];

            r->m = c->betas[0] * r->m + (1 - c->betas[0]) * g;
            r->v = c->betas[1] * r->v + (1 - c->betas[1]) * g * g;
            r->w -=
                lr * (r->m / (1 - pow(c->betas[0], t)) /
                          (sqrt(r->v / (1 - pow(c->betas[1], t))) + c->eps) +
                      decay * r->w);
        }
}

static double worst(void)
{
    double most = 0;
    size_t i, k = 0;
    int s;

    for (s = 0; s < nslices; s++)
        for (i = 0; i < slices[s].count; i++, k++) {
            double d = fabs(slices[s].master[i] - want[k].w);

            if (!(d <= most))
                most = d;
        }
    return most;
}

static void check_steps(void)
{
    double sum, want_sum, norm;
    float scale, before;
    int t;

    for (t = 1; t <= STEPS; t++) {
        want_sum = fill_gradients(t);
        plait_optim_sum_squares(optim, &sum);
        ok(fabs(sum - want_sum) <= 1e-6 * want_sum, "sum of squares, step %d",
           t);
        norm = sqrt(want_sum);
        scale = plait_clip(norm, config->optim.clip, 1);
        plait_optim_step(optim, 1e-2, scale, t);
        reference_step(1e-2, norm > 1 ? 1 / (norm + 1e-6) : 1, t);
        ok(worst() <= 1e-6, "weights after step %d: off by %.1e", t, worst());
    }
    fill_gradients(9);
    before = slices[0].master[0];
    plait_optim_step(optim, 1e-2, plait_clip(INFINITY, 1, 1), STEPS + 1);
    ok(slices[0].master[0] == before && worst() <= 1e-6,
       "gradients that are no number change nothing");
}

/* In bf16 the model's weights are the rounded master weights. */
static void check_half(void)
{
    const struct plait_region *r = &model->regions[slices[1].tensor->region];
    const uint16_t *weight = r->weight;
    size_t i, bad = 0;

    fill_gradients(2);
    plait_optim_step(optim, 1e-2, 1, 1);
    for (i = 0; i < slices[1].count; i++) {
        uint32_t bits = (uint32_t)weight[slices[1].tensor->offset + i] << 16;
        float w, master = slices[1].master[i];

        memcpy(&w, &bits, sizeof(w));
        bad += !(fabsf(w - master) <= fabsf(master) * 0x1p-8f);
    }
    ok(bad == 0, "bf16 weights follow their masters");
}

/* In fp32 the model's weights equal the master weights, wherever those are
 * kept. */
static void check_follow(const char *when)
{
    size_t bad = 0;

    for (int i = 0; i < nslices; i++) {
        const struct plait_tensor *t = slices[i].tensor;
        const float *weight = model->regions[t->region].weight;

        bad += memcmp(weight + t->offset + slices[i].first, slices[i].master,
                      slices[i].count * sizeof(*weight)) != 0;
    }
    ok(bad == 0, "weights are their masters %s", when);
}

static void check_all(const char *offload, const char *vocab)
{
    want = NULL;
    if (setup("train.precision=fp32", offload, vocab) == 0) {
        check_slices();
        check_follow("at first");
        check_steps();
        check_follow("after some steps");
    }
    teardown();
    want = NULL;
    if (setup("train.precision=bf16", offload, vocab) == 0)
        check_half();
    teardown();
}

/* The master weights after a few steps, one tensor after the other; NULL:
 * failed. */
static float *masters_after(const char *name, const char *offload, size_t *n)
{
    float *masters = NULL, *at;

    want = NULL;
    *n = 0;
    if (setup(name, offload, "model.vocab=97") == 0) {
        for (int t = 1; t <= STEPS; t++) {
            fill_gradients(t);
            plait_optim_step(optim, 1e-2, 0.5f, t);
        }
        check_follow("with the optimizer's state there");
        for (int i = 0; i < nslices; i++)
            *n += slices[i].count;
        at = masters = calloc(*n, sizeof(*masters));
        for (int i = 0; i < nslices; i++) {
            memcpy(at, slices[i].master, slices[i].count * sizeof(*at));
            at += slices[i].count;
        }
    }
    teardown();
    return masters;
}

/* Offloaded steps equal those of the device to rounding, as the host computes
 * them with other operations than ref. */
static void check_offloaded(const char *name)
{
    size_t n, same_n;
    float *here = masters_after(name, "parallel.offload=none", &n);
    float *there = masters_after(name, "parallel.offload=optimizer", &same_n);

    double most = here && there && n == same_n ? 0 : NAN;

    for (size_t i = 0; i < n && most >= 0; i++)
        most =
            fabs(here[i] - there[i]) <= most ? most : fabs(here[i] - there[i]);
    ok(most <= 1e-6, "%s: offloaded as on the device, off by %.1e", name, most);
    free(here);
    free(there);
}

/* Of two tensors of 32 x 32: their first moments in bf16. */
struct moments {
    uint16_t of[2][32 * 32];
};

/* The moments after one step, the given one, by the same gradient of each
 * tensor; all alike: failed. */
static void make_moments(const char *seed, const char *offload, int step,
                         struct moments *m)
{
    int found = 0;

    memset(m, 0, sizeof(*m));
    want = NULL;
    if (setup(seed, offload, "optim.moments=bf16") == 0) {
        for (int i = 0; i < nslices; i++)
            for (size_t k = 0; k < slices[i].count; k++)
                grad_of(&slices[i])[k] = sinf(k + 1);
        plait_optim_step(optim, 1e-2, 1, step);
        for (int i = 0; i < nslices && found < 2; i++)
            if (slices[i].count == 32 * 32)
                memcpy(m->of[found++], slices[i].state[0], sizeof(m->of[0]));
    }
    teardown();
}

/* The share of elements that differ. */
static double apart(const uint16_t *a, const uint16_t *b, int n)
{
    int differ = 0;

    for (int i = 0; i < n; i++)
        differ += a[i] != b[i];
    return (double)differ / n;
}

/* Two roundings of which nothing is common differ in a third of the elements:
 * in 2 p (1 - p) of those that are rounded up with probability p. */
static void check_draws(void)
{
    static const struct {
        const char *what, *seed, *offload;
        int step;
    } others[] = {
        {"step", "train.seed=5", "parallel.offload=none", 2},
        {"train.seed", "train.seed=6", "parallel.offload=none", 1},
    };
    enum { N = 2 * 32 * 32 };
    struct moments m, other;

    make_moments("train.seed=5", "parallel.offload=none", 1, &m);
    make_moments("train.seed=5", "parallel.offload=optimizer", 1, &other);
    ok(apart(m.of[0], other.of[0], N) == 0, "an offloaded step draws the same");
    ok(fabs(apart(m.of[0], m.of[1], N / 2) - 1.0 / 3) < 0.05,
       "another tensor draws other bits: %.3f differ",
       apart(m.of[0], m.of[1], N / 2));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        make_moments(others[i].seed, others[i].offload, others[i].step, &other);
        ok(fabs(apart(m.of[0], other.of[0], N) - 1.0 / 3) < 0.05,
           "another %s draws other bits: %.3f differ", others[i].what,
           apart(m.of[0], other.of[0], N));
    }
}

int main(void)
{
    check_all("parallel.offload=none", "model.vocab=97");
    check_all("parallel.offload=optimizer", "model.vocab=97");
    /* a tensor that is offloaded in several pieces */
    check_all("parallel.offload=optimizer", "model.vocab=70000");
    check_offloaded("optim.name=sgd");
    check_offloaded("optim.name=lion");
    check_draws();
    return done_testing();
}
