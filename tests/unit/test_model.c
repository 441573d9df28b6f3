/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "late_ops.h"
#include "model_run.h"

#define ROWS 32

static int32_t tokens[ROWS], targets[ROWS];
static bool training; /* what loss_of() tells the model */

static double loss_of(struct run *r, const struct plait_batch *b)
{
    if (plait_model_forward(
            r->model, &(struct plait_forward){
                          .batch = b, .loss = r->loss, .train = training}) < 0)
        give_up("forward", NULL);
    return take_loss(r);
}

static double step(struct run *r, const struct plait_batch *b)
{
    clear_grads(r);
    if (plait_model_forward(r->model, &(struct plait_forward){.batch = b,
                                                              .loss = r->loss,
                                                              .train = true}) <
            0 ||
        plait_model_backward(r->model, &(struct plait_backward){0}) < 0)
        give_up("step", NULL);
    return take_loss(r);
}

/* What a test also holds for dropout. */
static void drop(struct plait_job_config *config)
{
    config->model.dropout = 0.1;
    config->model.attention_dropout = 0.1;
}

/* The slope of the loss along `dir`, by central differences. */
static double slope(struct run *r, const struct plait_batch *b,
                    const struct plait_tensor *t, const float *w,
                    const float *dir, double h)
{
    float *moved = malloc(t->count * sizeof(*moved));
    double up, down;

    for (size_t i = 0; i < t->count; i++)
        moved[i] = w[i] + h * dir[i];
    set_tensor(r, t, moved);
    up = loss_of(r, b);
    for (size_t i = 0; i < t->count; i++)
        moved[i] = w[i] - h * dir[i];
    set_tensor(r, t, moved);
    down = loss_of(r, b);
    set_tensor(r, t, w);
    free(moved);
    return (up - down) / (2 * h);
}

/* Along its own gradient the loss must rise by the gradient's length. A step
 * changes the loss by about 0.02 of 170, far above rounding errors; two step
 * sizes, extrapolated, cancel the third derivative. */
static void check_tensor(struct run *r, const struct plait_batch *b,
                         const struct plait_tensor *t)
{
    float *g = grad_of(r, t), *w = malloc(t->count * sizeof(*w));
    double norm = 0, h, found;

    lively(t, w);
    for (size_t i = 0; i < t->count; i++)
        norm += (double)g[i] * g[i];
    norm = sqrt(norm);
    for (size_t i = 0; i < t->count; i++)
        g[i] /= norm;
    h = fmin(0.02 / norm, 0.02);
    found = (4 * slope(r, b, t, w, g, h) - slope(r, b, t, w, g, 2 * h)) / 3;
    /* A key's bias adds the same to all scores of a query: its gradient is 0
     * but for rounding errors, 1e-7 of the loss over the step. */
    ok(fabs(found - norm) <= 1e-3 * norm + 170 * 1e-7 / 0.02,
       "%s: slope %g, gradient %g", t->name, found, norm);
    free(g);
    free(w);
}

static void test_gradients(enum plait_family family, int experts)
{
    struct plait_job_config config;
    struct run r = {0};
    struct plait_batch b;
    double a, c;

    small_config(&config, family);
    config.model.layers = 2;
    config.model.experts = experts;
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, plait_ops_ref());
    open_model(&r, &config, 1);
    b = make_batch(&config, tokens, targets);
    a = loss_of(&r, &b);
    c = step(&r, &b);
    ok(memcmp(&a, &c, sizeof(a)) == 0 && isfinite(a),
       "family %d, %d experts: loss %.4f, trained on or not", family, experts,
       a);
    for (int i = 0; i < r.model->ntensors; i++) {
        const struct plait_tensor *t = &r.model->tensors[i];

        /* Unless all experts are chosen, a step of the router may send a token
         * to another expert, which makes the loss jump. */
        if (experts <= config.model.experts_top_k || !strstr(t->name, "router"))
            check_tensor(&r, &b, t);
    }
    close_run(&r);
}

/* A model, and what it is compared with, on one rank. */
static void open_pair(struct run *r, struct plait_job_config *config,
                      struct run *plain, struct plait_job_config *none)
{
    place(&r->mesh, 1, 0, 1, 0);
    plain->mesh = r->mesh;
    open_device(r, plait_ops_ref());
    open_model(r, config, 1);
    open_device(plain, plait_ops_ref());
    open_model(plain, none, 1);
}

/* All gradients, as training has them. */
static void check_trained(struct run *r, const struct plait_batch *b)
{
    training = true;
    for (int i = 0; i < r->model->ntensors; i++) {
        step(r, b); /* losses have added to the head's gradient */
        check_tensor(r, b, &r->model->tensors[i]);
    }
    training = false;
}

/* Dropout: the gradient is that of the loss with what was dropped, which only
 * the sample decides, and which an evaluation keeps. */
static void test_dropout(enum plait_family family)
{
    struct plait_job_config config, none;
    struct run r = {0}, plain = {0};
    struct plait_batch b, other;
    double drops, again, differs, evaluated, without;

    small_config(&config, family);
    config.model.layers = 2;
    none = config;
    config.model.dropout = 0.2;
    config.model.attention_dropout = 0.3;
    open_pair(&r, &config, &plain, &none);
    b = make_batch(&config, tokens, targets);
    b.sample = 40;
    other = b;
    other.sample = 41;
    evaluated = loss_of(&r, &b);
    without = loss_of(&plain, &b);
    differs = step(&r, &other);
    drops = step(&r, &b);
    again = step(&r, &b);
    ok(drops == again && drops != differs && drops != without,
       "family %d: dropout by sample, loss %.4f, %.4f of the next", family,
       drops, differs);
    ok(evaluated == without, "and none in an evaluation: the same bits");
    check_trained(&r, &b);
    close_run(&plain);
    close_run(&r);
}

/* A module that predicts a token further: the gradient is that of both losses,
 * of which an evaluation has the one alone. */
static void test_mtp(enum plait_family family, int experts, bool tied)
{
    struct plait_job_config config, none;
    struct run r = {0}, plain = {0};
    struct plait_batch b;
    double evaluated, without, both;

    small_config(&config, family);
    config.model.layers = 2;
    config.model.experts = experts;
    config.model.tie_embeddings = tied;
    none = config;
    config.model.mtp_layers = 1;
    config.model.mtp_loss = 0.3;
    open_pair(&r, &config, &plain, &none);
    b = make_batch(&config, tokens, targets);
    evaluated = loss_of(&r, &b);
    without = loss_of(&plain, &b);
    both = step(&r, &b);
    ok(evaluated == without && both > 1.2 * without,
       "family %d, %d experts: loss %.4f, with that of the token after the "
       "next %.4f",
       family, experts, without, both);
    check_trained(&r, &b);
    close_run(&plain);
    close_run(&r);
}

static int linear_forwards;
static size_t counted_grads;
static const struct plait_ops *counted;

static int count_forward(struct plait_queue *q, const struct plait_linear *l)
{
    linear_forwards++;
    return counted->linear_forward(q, l);
}

/* Products of the forward pass of two layers and a module, which has all of the
 * module; the gradients go to `grads`. */
static int forwards_of(enum plait_recompute recompute, float **grads)
{
    struct plait_job_config config;
    struct plait_ops ops = *plait_ops_ref();
    struct run r = {0};
    struct plait_batch b;
    int n;

    small_config(&config, PLAIT_LLAMA);
    config.model.layers = 2;
    config.model.mtp_layers = 1;
    config.model.mtp_loss = 0.3;
    config.parallel.recompute = recompute;
    counted = plait_ops_ref();
    ops.linear_forward = count_forward;
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, &ops);
    open_model(&r, &config, 1);
    b = make_batch(&config, tokens, targets);
    clear_grads(&r);
    linear_forwards = 0;
    plait_model_forward(
        r.model,
        &(struct plait_forward){.batch = &b, .loss = r.loss, .train = true});
    n = linear_forwards;
    plait_model_backward(r.model, &(struct plait_backward){0});
    *grads = malloc(r.model->count * sizeof(**grads));
    counted_grads = r.model->count;
    memcpy(*grads, r.grads, counted_grads * sizeof(**grads));
    close_run(&r);
    return n;
}

/* A module's backward follows its forward: nothing of it is computed again. */
static void test_mtp_recompute(void)
{
    float *kept, *again;
    int n = forwards_of(PLAIT_RECOMPUTE_NONE, &kept);
    int full = forwards_of(PLAIT_RECOMPUTE_FULL, &again);

    ok(n > 0 && full == n &&
           memcmp(kept, again, counted_grads * sizeof(*kept)) == 0,
       "recompute: %d products of the forward pass with a module, %d without "
       "recompute, the same gradients",
       full, n);
    free(again);
    free(kept);
}

/* Rows of a module that have no next token train the embedding of no token that
 * the batch lacks, not even through the balance of its experts. */
static void test_mtp_last(void)
{
    struct plait_job_config config;
    const struct plait_tensor *t;
    struct run r = {0};
    struct plait_batch b;
    double lacked = 0, had = 0;
    float *g;

    small_config(&config, PLAIT_LLAMA);
    config.model.experts = 4;
    config.model.experts_balance = 1;
    config.model.mtp_layers = 1;
    config.model.mtp_loss = 0.3;
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, plait_ops_ref());
    open_model(&r, &config, 1);
    b = make_batch(&config, tokens, targets);
    for (int i = 0; i < ROWS; i++)
        tokens[i] = 1 + tokens[i] % 2;
    step(&r, &b);
    t = find_tensor(r.model, "embedding.weight");
    g = grad_of(&r, t);
    for (int i = 0; i < config.model.hidden; i++) {
        lacked = fmax(lacked, fabs(g[i]));
        had = fmax(had, fabs(g[config.model.hidden + i]));
    }
    ok(lacked == 0 && had > 0,
       "rows without a next token: gradient %g of a token that is not there, "
       "%g of one that is",
       lacked, had);
    free(g);
    close_run(&r);
}

/* Documents side by side in a sequence are as sequences of their own: the token
 * after the next is none of another one. */
static void test_mtp_documents(void)
{
    struct plait_job_config config, each;
    struct run r = {0}, apart = {0};
    struct plait_batch b, short_b;
    int32_t starts[ROWS];
    double together, alone, worst = 0;

    small_config(&config, PLAIT_LLAMA);
    config.model.mtp_layers = 1;
    config.model.mtp_loss = 0.3;
    each = config;
    config.data.mask_documents = true;
    each.model.seq_len /= 2;
    each.train.micro_batch *= 2;
    place(&r.mesh, 1, 0, 1, 0);
    apart.mesh = r.mesh;
    open_device(&r, plait_ops_ref());
    open_model(&r, &config, 1);
    open_device(&apart, plait_ops_ref());
    open_model(&apart, &each, 1);
    b = make_batch(&config, tokens, targets);
    for (int i = 0; i < ROWS; i++)
        starts[i] = i % b.seq_len / each.model.seq_len * each.model.seq_len;
    b.starts = starts;
    short_b = b;
    short_b.starts = NULL;
    short_b.seq_len = each.model.seq_len;
    short_b.batch = each.train.micro_batch;
    together = step(&r, &b);
    alone = step(&apart, &short_b);
    for (size_t i = 0; i < r.model->count; i++)
        worst = fmax(worst, fabs(r.grads[i] - apart.grads[i]));
    ok(fabs(together - alone) <= 1e-6 * alone && worst < 1e-4,
       "documents with the token after the next: loss %.6f, apart %.6f, "
       "gradients off by %.1e",
       together, alone, worst);
    close_run(&apart);
    close_run(&r);
}

/* The gradients of `config`, contiguous; the caller frees them. */
static float *gradients(const struct plait_job_config *config,
                        const struct plait_ops *ops, double *loss,
                        size_t *count)
{
    struct run r = {0};
    struct plait_batch b;
    float *g;

    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, ops);
    open_model(&r, config, 2);
    b = make_batch(config, tokens, targets);
    *loss = step(&r, &b);
    *count = r.model->count;
    g = malloc(*count * sizeof(*g));
    ops->to_host(r.mesh.q, g, r.grads, *count * sizeof(*g));
    close_run(&r);
    return g;
}

static void test_recompute(enum plait_family family, int experts,
                           enum plait_precision precision)
{
    static const char *const names[] = {"none", "selective", "full"};
    struct plait_job_config config;
    double loss, again;
    size_t n;
    float *want;

    small_config(&config, family);
    config.model.experts = experts;
    config.train.precision = precision;
    drop(&config);
    want = gradients(&config, plait_ops_cpu(), &loss, &n);
    for (int i = PLAIT_RECOMPUTE_NONE; i <= PLAIT_RECOMPUTE_FULL; i++) {
        float *got;

        config.parallel.recompute = i;
        got = gradients(&config, plait_ops_cpu(), &again, &n);
        ok(loss == again && memcmp(want, got, n * sizeof(*got)) == 0,
           "family %d, %d experts, precision %d, recompute %s: the same "
           "bits",
           family, experts, precision, names[i]);
        free(got);
    }
    free(want);
}

/* The gradients of two micro-batches in flight, whose backward begins with
 * `first`; the caller frees them. */
static float *two_in_flight(const struct plait_job_config *config,
                            const struct plait_ops *ops, int first,
                            size_t *bytes, size_t *pinned)
{
    static int32_t other[ROWS];
    struct run r = {0};
    struct plait_batch b[2];
    float *grads;

    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, ops);
    late.compute = r.mesh.q;
    open_model(&r, config, 2);
    b[0] = b[1] = make_batch(config, tokens, targets);
    for (int i = 0; i < ROWS; i++)
        other[i] = tokens[ROWS - 1 - i];
    b[1].tokens = other;
    clear_grads(&r);
    for (int i = 0; i < 2; i++)
        if (plait_model_forward(r.model,
                                &(struct plait_forward){.slot = i,
                                                        .batch = &b[i],
                                                        .loss = r.loss,
                                                        .train = true}) < 0)
            give_up("forward", NULL);
    for (int i = 0; i < 2; i++)
        if (plait_model_backward(
                r.model, &(struct plait_backward){.slot = first ^ i,
                                                  .microbatch = first ^ i}) < 0)
            give_up("backward", NULL);
    r.mesh.ops->pinned_memory(r.mesh.dev, pinned, NULL);
    *bytes = r.model->count * sizeof(*grads);
    grads = malloc(*bytes);
    memcpy(grads, r.grads, *bytes);
    close_run(&r);
    return grads;
}

/* Offloaded activations give the same bits as those kept on the device. */
static void test_offload(enum plait_family family, int experts,
                         enum plait_recompute recompute)
{
    struct plait_job_config config;

    small_config(&config, family);
    config.model.experts = experts;
    drop(&config);
    config.parallel.recompute = recompute;
    for (int first = 0; first < 2; first++) {
        size_t bytes, none, pinned;
        float *want, *got, *later;

        config.parallel.offload = PLAIT_OFFLOAD_NONE;
        want = two_in_flight(&config, plait_ops_cpu(), first, &bytes, &none);
        config.parallel.offload = PLAIT_OFFLOAD_ACTIVATIONS;
        got = two_in_flight(&config, plait_ops_cpu(), first, &bytes, &pinned);
        later = two_in_flight(&config, late_ops(), first, &bytes, &pinned);
        ok(none == 0 && pinned > 0 && memcmp(want, got, bytes) == 0,
           "family %d, %d experts, recompute %d: activations away and back, "
           "%d first: the same bits",
           family, experts, recompute, first);
        ok(late.done > 0 && memcmp(want, later, bytes) == 0,
           "family %d, %d experts, recompute %d: the same with late copies",
           family, experts, recompute);
        free(later);
        free(want);
        free(got);
    }
}

/* Two micro-batches with the weight gradients of both after the input gradients
 * of both. */
static void test_split(enum plait_family family, enum plait_recompute recompute)
{
    struct plait_job_config config;
    struct run r = {0};
    struct plait_batch b;
    float *whole;
    int same = 1;

    small_config(&config, family);
    config.parallel.schedule = PLAIT_SCHEDULE_ZB_H1;
    drop(&config);
    config.parallel.recompute = recompute;
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, plait_ops_cpu());
    open_model(&r, &config, 2);
    b = make_batch(&config, tokens, targets);
    clear_grads(&r);
    for (int i = 0; i < 2; i++)
        same &= plait_model_forward(
                    r.model, &(struct plait_forward){.slot = i,
                                                     .batch = &b,
                                                     .loss = r.loss,
                                                     .train = true}) == 0;
    for (int i = 0; i < 2; i++)
        same &= plait_model_backward(
                    r.model,
                    &(struct plait_backward){.slot = i, .microbatch = i}) == 0;
    whole = malloc(r.model->count * sizeof(*whole));
    r.mesh.ops->to_host(r.mesh.q, whole, r.grads,
                        r.model->count * sizeof(*whole));
    clear_grads(&r);
    for (int i = 0; i < 2; i++)
        same &= plait_model_forward(
                    r.model, &(struct plait_forward){.slot = i,
                                                     .batch = &b,
                                                     .loss = r.loss,
                                                     .train = true}) == 0;
    for (int i = 0; i < 2; i++)
        same &= plait_model_backward_input(
                    r.model,
                    &(struct plait_backward){.slot = i, .microbatch = i}) == 0;
    for (int i = 0; i < 2; i++)
        same &= plait_model_backward_weight(
                    r.model,
                    &(struct plait_backward){.slot = i, .microbatch = i}) == 0;
    ok(same && memcmp(whole, r.grads, r.model->count * sizeof(*whole)) == 0,
       "family %d, recompute %d: backward in two halves, the same bits", family,
       recompute);
    free(whole);
    close_run(&r);
}

/* Two micro-batches; begin: the gradients hold arbitrary values before. */
static float *sum_gradients(struct run *r, const struct plait_batch *b,
                            bool begin)
{
    size_t n = r->model->count;
    float *g = malloc(n * sizeof(*g));
    int rc = 0;

    memset(r->grads, begin ? 0xff : 0, n * sizeof(*g));
    for (int i = 0; begin && i < r->model->nregions; i++)
        rc |= plait_model_begin_gradient(r->model, &r->model->regions[i]);
    for (int i = 0; i < 2; i++)
        rc |= plait_model_forward(r->model,
                                  &(struct plait_forward){.batch = b,
                                                          .loss = r->loss,
                                                          .train = true}) |
              plait_model_backward(r->model,
                                   &(struct plait_backward){.microbatch = i});
    for (int i = 0; i < r->model->nregions; i++)
        rc |= plait_model_complete_gradient(r->model, &r->model->regions[i]);
    if (rc < 0)
        give_up("gradients", NULL);
    memcpy(g, r->grads, n * sizeof(*g));
    return g;
}

/* No gradient of the last step remains, not even of parts that got no
 * tokens. */
static void test_begin(enum plait_family family, int experts, bool tied)
{
    struct plait_job_config config;
    struct run r = {0};
    struct plait_batch b;
    float *want, *got;
    int idle = 0;
    size_t same = 0;

    small_config(&config, family);
    config.model.experts = experts;
    config.model.tie_embeddings = tied;
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, plait_ops_ref());
    open_model(&r, &config, 1);
    b = make_batch(&config, tokens, targets);
    want = sum_gradients(&r, &b, false);
    got = sum_gradients(&r, &b, true);
    for (size_t i = 0; i < r.model->count; i++)
        same += got[i] == want[i];
    ok(same == r.model->count,
       "family %d, %d experts, tied %d: gradients begin anew", family, experts,
       tied);
    for (int i = 0; i < r.model->ntensors; i++) {
        const struct plait_tensor *t = &r.model->tensors[i];
        const float *g = got + r.model->regions[t->region].begin + t->offset;
        size_t zeros = 0;

        while (zeros < t->count && g[zeros] == 0)
            zeros++;
        idle += t->expert && zeros == t->count;
    }
    ok(!experts == !idle, "%d tensors of experts that had no token", idle);
    free(want);
    free(got);
    close_run(&r);
}

/* Runs the stages of a pipeline one after the other in this process. */
static void test_stages(enum plait_family family, int pp)
{
    struct plait_job_config config;
    struct run whole = {0}, *r = calloc(pp, sizeof(*r));
    struct plait_batch b;
    float *x[8] = {NULL};
    double loss, worst = 0;

    small_config(&config, family);
    drop(&config);
    b = make_batch(&config, tokens, targets);
    place(&whole.mesh, 1, 0, 1, 0);
    open_device(&whole, plait_ops_ref());
    open_model(&whole, &config, 1);
    loss = step(&whole, &b);
    for (int s = 0; s < pp; s++) {
        place(&r[s].mesh, 1, 0, pp, s);
        open_device(&r[s], plait_ops_ref());
        open_model(&r[s], &config, 1);
        x[s + 1] =
            calloc(plait_model_boundary(r[s].model, b.batch), sizeof(float));
        if (plait_model_forward(r[s].model,
                                &(struct plait_forward){.batch = &b,
                                                        .in = x[s],
                                                        .out = x[s + 1],
                                                        .loss = r[s].loss,
                                                        .train = true}) < 0)
            give_up("stage", NULL);
    }
    ok(take_loss(&r[pp - 1]) == loss, "family %d: %d stages, the same loss",
       family, pp);
    for (int s = pp - 1; s >= 0; s--)
        if (plait_model_backward(
                r[s].model,
                &(struct plait_backward){.dout = x[s + 1], .din = x[s]}) < 0)
            give_up("stage", NULL);
    for (int s = 0; s < pp; s++)
        for (int i = 0; i < r[s].model->ntensors; i++) {
            const struct plait_tensor *t = &r[s].model->tensors[i];
            const struct plait_tensor *u = find_tensor(whole.model, t->name);
            float *g = grad_of(&r[s], t), *want = grad_of(&whole, u);
            float *other = NULL;

            if (t->tied)
                other = grad_of(&r[s ? 0 : pp - 1],
                                find_tensor(r[s ? 0 : pp - 1].model, t->name));
            for (size_t k = 0; k < t->count; k++)
                worst =
                    fmax(worst, fabs(g[k] + (other ? other[k] : 0) - want[k]));
            free(other);
            free(g);
            free(want);
        }
    ok(worst < 1e-4, "and the same gradients (worst difference %g)", worst);
    for (int s = 0; s < pp; s++) {
        close_run(&r[s]);
        free(x[s + 1]);
    }
    free(r);
    close_run(&whole);
}

static void test_cpu(enum plait_family family, int experts)
{
    struct plait_job_config config;
    double loss, fast, worst = 0, largest = 0;
    float *want, *got;
    size_t n;

    small_config(&config, family);
    config.model.experts = experts;
    drop(&config);
    want = gradients(&config, plait_ops_ref(), &loss, &n);
    got = gradients(&config, plait_ops_cpu(), &fast, &n);
    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs(want[i] - got[i]));
        largest = fmax(largest, fabs(want[i]));
    }
    ok(fabs(loss - fast) < 1e-5 * loss && worst < 1e-5 * largest,
       "family %d, %d experts: cpu as ref, within %g of the largest gradient",
       family, experts, worst / largest);
    config.train.precision = PLAIT_BF16;
    free(got);
    got = gradients(&config, plait_ops_cpu(), &fast, &n);
    ok(fabs(loss - fast) < 2e-2 * loss, "bf16: loss %.4f, fp32 %.4f", fast,
       loss);
    free(want);
    free(got);
}

/* Norms after, which go into what is kept, recomputed and put off. */
static void test_after(enum plait_family family)
{
    test_gradients(family, 0);
    test_recompute(family, 0, PLAIT_FP32);
    test_recompute(family, 0, PLAIT_BF16);
    test_recompute(family, 0, PLAIT_FP8);
    for (int r = PLAIT_RECOMPUTE_NONE; r <= PLAIT_RECOMPUTE_FULL; r++) {
        test_offload(family, 0, r);
        test_split(family, r);
    }
    test_begin(family, 0, false);
    test_stages(family, 5);
    test_cpu(family, 0);
}

/* Weights that no token passes have gradients of 0, as differences say, too. */
static void test_shared(void)
{
    struct plait_job_config config;
    struct run r = {0};
    struct plait_batch b;
    int n = 0, moved = 0;

    small_config(&config, FIRST_LLAMA);
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, plait_ops_ref());
    open_model(&r, &config, 1);
    b = make_batch(&config, tokens, targets);
    step(&r, &b);
    for (int i = 0; i < r.model->ntensors; i++) {
        const struct plait_tensor *t = &r.model->tensors[i];
        float *g = grad_of(&r, t);

        n += strstr(t->name, ".shared.") != NULL;
        moved += strstr(t->name, ".shared.") && g[0] != 0;
        free(g);
    }
    ok(n == 9 && moved == n, "shared experts: %d of %d gradients", moved, n);
    close_run(&r);
}

/* Layers of two kinds. */
static void test_first(enum plait_family family)
{
    static const enum plait_precision precisions[] = {PLAIT_FP32, PLAIT_BF16,
                                                      PLAIT_FP8};

    test_gradients(family, 2);
    for (int i = 0; i < 3; i++)
        test_recompute(family, 4, precisions[i]);
    for (int r = PLAIT_RECOMPUTE_NONE; r <= PLAIT_RECOMPUTE_FULL; r++) {
        test_offload(family, 4, r);
        test_split(family, r);
    }
    test_stages(family, 5);
    test_cpu(family, 4);
}

/* Keys and values of a latent. */
static void test_latent(enum plait_family family)
{
    test_gradients(family, 0);
    test_gradients(family, 2);
    test_recompute(family, 0, PLAIT_FP32);
    test_recompute(family, 4, PLAIT_BF16);
    for (int r = PLAIT_RECOMPUTE_NONE; r <= PLAIT_RECOMPUTE_FULL; r++) {
        test_offload(family, 0, r);
        test_split(family, r);
    }
    test_begin(family, 0, false);
    test_stages(family, 5);
    test_cpu(family, 4);
}

int main(void)
{
    static const enum plait_family families[] = {PLAIT_GPT2, PLAIT_LLAMA,
                                                 RICH_LLAMA};

    for (int i = 0; i < 3; i++) {
        enum plait_family family = families[i];

        test_gradients(family, 0);
        test_gradients(family, 2);
        /* For RICH_LLAMA, a step of a key's norm may change a token's
         * experts. */
        if (family != RICH_LLAMA)
            test_gradients(family, 3);
        test_dropout(family);
        test_recompute(family, 0, PLAIT_FP32);
        test_recompute(family, 4, PLAIT_FP32);
        test_recompute(family, 0, PLAIT_BF16);
        test_recompute(family, 4, PLAIT_BF16);
        test_recompute(family, 0, PLAIT_FP8);
        test_recompute(family, 4, PLAIT_FP8);
        for (int r = PLAIT_RECOMPUTE_NONE; r <= PLAIT_RECOMPUTE_FULL; r++) {
            test_offload(family, 0, r);
            test_offload(family, 4, r);
        }
        for (int r = PLAIT_RECOMPUTE_NONE; r <= PLAIT_RECOMPUTE_FULL; r++)
            test_split(family, r);
        test_begin(family, 0, false);
        test_begin(family, 0, true);
        test_begin(family, 32, true);
        test_stages(family, 2);
        test_stages(family, 4);
        test_stages(family, 5);
        test_stages(family, 6);
        test_cpu(family, 0);
        test_cpu(family, 4);
    }
    test_mtp(PLAIT_GPT2, 0, true);
    test_mtp_documents();
    test_mtp_last();
    test_mtp_recompute();
    test_mtp(PLAIT_LLAMA, 0, false);
    test_mtp(LATENT_LLAMA, 2, false);
    test_after(AFTER_LLAMA);
    test_after(BOTH_LLAMA);
    test_dropout(BOTH_LLAMA);
    test_shared();
    test_first(FIRST_LLAMA);
    test_first(PLACED_LLAMA);
    test_latent(LATENT_LLAMA);
    test_latent(DIRECT_LLAMA);
    return done_testing();
}
