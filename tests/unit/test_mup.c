/* SPDX-License-Identifier: Apache-2.0 */
/* Maximal update parametrization: what follows from width and depth, that all
 * of it is as usual at the base, and the coordinate check. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "optim_job.h"
#include "tap.h"
#include "topology/job/mup.h"

enum { STEPS = 4, ROWS = 4, TOKENS = 16, VOCAB = 67 };

/* -- one training --------------------------------------------------------- */

/* What the observer sees of one pass: the sum of the squares of what some
 * activations of the last layer differ from their first values. */
struct seen {
    float *first[4];
    double change[4];
    int layer; /* the last one */
};

static const char *const watched[] = {"the input", "q, k and v",
                                      "the attention", "the mlp's activations"};

static int see(void *arg, int layer, const char *what, enum plait_dtype type,
               const void *x, size_t n)
{
    struct seen *s = arg;
    const float *v = x;
    double sum = 0;

    (void)type;
    for (int i = 0; i < 4; i++) {
        if (layer != s->layer || strcmp(what, watched[i]) != 0)
            continue;
        if (!s->first[i]) {
            s->first[i] = malloc(n * sizeof(*v));
            memcpy(s->first[i], v, n * sizeof(*v));
        }
        for (size_t k = 0; k < n; k++)
            sum += (v[k] - s->first[i][k]) * (v[k] - s->first[i][k]);
        s->change[i] = sqrt(sum / n);
    }
    return 0;
}

static int pass(struct optim_job *job, double *loss)
{
    static int32_t tokens[ROWS * TOKENS], targets[ROWS * TOKENS];
    struct plait_batch batch = {.batch = ROWS,
                                .seq_len = TOKENS,
                                .tokens = tokens,
                                .targets = targets,
                                .loss_scale = 1.0F / (ROWS * TOKENS)};

    for (int i = 0; i < ROWS * TOKENS; i++) {
        tokens[i] = (i * i * 7 + i / 3) % VOCAB;
        targets[i] = (i * 31 + 5) % VOCAB;
    }
    for (int i = 0; i < job->model->nregions; i++)
        if (plait_model_begin_gradient(job->model, &job->model->regions[i]) < 0)
            return -1;
    *loss = 0;
    if (plait_model_forward(
            job->model, &(struct plait_forward){
                            .batch = &batch, .loss = loss, .train = true}) < 0)
        return -1;
    return plait_model_backward(job->model, &(struct plait_backward){0});
}

/* Trains a model of this section, with these changes to it. 0 if it worked;
 * closes the job otherwise. */
static int train(struct optim_job *job, const char *model, const char *optim,
                 struct seen *seen, double *loss)
{
    struct plait_error err = {""};
    char yaml[512];
    int n = snprintf(yaml, sizeof(yaml),
                     "model: {vocab: %d, seq_len: %d, %s}\n"
                     "train: {micro_batch: %d}\n"
                     "optim: {%s}\n",
                     VOCAB, TOKENS, model, ROWS, optim);

    if (optim_job_open(
            job, plait_job_config_parse("test", yaml, (size_t)n, NULL, 0, &err),
            plait_ops_cpu(), 2, 1, &err) < 0)
        return ok(0, "setup: %s", err.text), -1;
    if (seen) {
        seen->layer = job->config->model.layers - 1;
        job->model->observer = (struct plait_model_observer){see, seen, -1};
    }
    if (plait_model_reserve(job->model, 1, ROWS, &err) < 0)
        return ok(0, "memory: %s", err.text), -1;
    for (int step = 1; step <= STEPS + 1; step++)
        if (pass(job, loss) < 0 ||
            (step <= STEPS &&
             plait_optim_step(job->optim, job->config->optim.lr, 1, step) < 0))
            return ok(0, "step %d", step), -1;
    return 0;
}

/* -- at the base ---------------------------------------------------------- */

static bool equal_tensors(const struct optim_job *a, const struct optim_job *b)
{
    bool same = a->nslices == b->nslices;

    for (int i = 0; i < a->nslices && same; i++) {
        size_t n = a->slices[i].count * sizeof(float);
        float *x = malloc(n), *y = malloc(n);

        same = plait_optim_read(a->optim, x, a->slices[i].master, n) == 0 &&
               plait_optim_read(b->optim, y, b->slices[i].master, n) == 0 &&
               memcmp(x, y, n) == 0;
        free(x);
        free(y);
    }
    return same;
}

/* The base's own width, depth and head: bit by bit as without. */
static void check_base(const char *model, const char *mup, const char *optim)
{
    struct optim_job usual = {0}, base = {0};
    double loss, want;
    char both[256];

    snprintf(both, sizeof(both), "%s, %s", model, mup);
    if (train(&usual, model, optim, NULL, &want) < 0 ||
        train(&base, both, optim, NULL, &loss) < 0)
        return;
    ok(loss == want && equal_tensors(&usual, &base),
       "at the base, %s, %s: the usual bits", mup, optim);
    optim_job_close(&usual);
    optim_job_close(&base);
}

/* -- away from it --------------------------------------------------------- */

static void check_numbers(void)
{
    struct plait_model_config m = {.layers = 8,
                                   .hidden = 256,
                                   .heads = 4,
                                   .logits_scaling = 3,
                                   .residual_multiplier = 0.5};
    struct plait_mup_scale s;
    const struct plait_tensor_row *row = plait_tensor_table;

    ok(plait_mup_attention(&m) == 0 && plait_mup_logits(&m) == 3 &&
           plait_mup_residual(&m) == 0.5,
       "without mup: the model's own constants");
    m.mup = 64;
    m.mup_layers = 2;
    m.mup_head_dim = 16;
    ok(plait_mup_attention(&m) == 4.0 / 64 && plait_mup_logits(&m) == 12 &&
           plait_mup_residual(&m) == 0.125,
       "scores by 1 / head_dim, logits by 1 / width, halves by 1 / depth");
    m.attention_multiplier = 0.4;
    ok(plait_mup_attention(&m) == 0.1, "a model's own factor of scores, too");
    for (; row < plait_tensor_table + PLAIT_TENSOR_ROWS; row++) {
        bool linear = plait_tensor_is_linear(row);
        bool layer = strncmp(row->name, "embedding", 9) != 0 &&
                     strncmp(row->name, "position", 8) != 0 &&
                     row->kind != PLAIT_KIND_HEAD;
        double init = row->role == PLAIT_ROLE_RESIDUAL ? 1
                      : linear                         ? 0.5
                      : row->role == PLAIT_ROLE_ROUTER ? 0.25
                                                       : 1;
        bool router = row->role == PLAIT_ROLE_ROUTER;
        bool slow = linear || router;
        bool same = router || row->role == PLAIT_ROLE_ROUTER_BIAS;
        double eps = (same ? 1 : 0.25) * (layer ? 0.25 : 1);

        if (row->kind == PLAIT_KIND_MTP)
            continue; /* not together with model.mup */
        s = plait_mup_scale(&m, row);
        ok(s.init == init && s.rate == (slow ? 0.25 : 1) && s.eps == eps,
           "%s: init %g, rate %g, eps %g", row->name, s.init, s.rate, s.eps);
    }
    plait_mup_resolve(&m);
    ok(!m.mup && !m.mup_layers && !m.mup_head_dim &&
           m.attention_multiplier == 0.1 && m.logits_scaling == 12 &&
           m.residual_multiplier == 0.125,
       "the same constants in a model without mup");
}

/* A step of Adam moves a weight by its rate, whatever the gradient, and decay
 * shrinks it by lr times weight_decay, at any width. */
static void check_rates(const char *optim)
{
    struct optim_job job = {0};
    double loss, most = 0, least = INFINITY;

    if (train(&job, "family: llama, layers: 1, hidden: 64, heads: 4, mup: 16",
              optim, NULL, &loss) < 0)
        return;
    for (int i = 0; i < job.nslices; i++) {
        const struct plait_optim_slice *s = &job.slices[i];
        size_t n = s->count;
        float *x = malloc(2 * n * sizeof(*x)), *y = x + n;
        double decay = s->tensor->decay ? 1 - 0.1 * 0.01 : 1;
        double sum = 0;

        plait_model_init_tensor(s->tensor, 1, s->first, n, x);
        for (int step = 1; step <= STEPS; step++)
            for (size_t k = 0; k < n; k++)
                x[k] *= (float)decay;
        plait_optim_read(job.optim, y, s->master, n * sizeof(*y));
        for (size_t k = 0; k < n; k++)
            sum = fmax(sum, fabs(y[k] - x[k]));
        sum /= s->tensor->rate * 0.01 * STEPS;
        most = fmax(most, sum);
        least = fmin(least, sum);
        free(x);
    }
    ok(most < 1.02 && least > 0.7,
       "%s: of each tensor a weight moves by its rate: %.3f to %.3f", optim,
       least, most);
    optim_job_close(&job);
}

/* -- the coordinate check ------------------------------------------------- */

/* How much more the activations of a model eight times as wide change in some
 * steps; and whether each is a number. */
static void find_growth(const char *mup, double growth[4])
{
    static const int widths[] = {32, 256};

    for (int w = 0; w < 2; w++) {
        struct optim_job job = {0};
        struct seen seen = {.layer = 0};
        char model[256];
        double loss;

        snprintf(model, sizeof(model),
                 "family: llama, layers: 3, hidden: %d, heads: %d, ffn: %d%s",
                 widths[w], widths[w] / 16, 2 * widths[w], mup);
        if (train(&job, model, "lr: 0.01, weight_decay: 0", &seen, &loss) < 0)
            exit(1);
        for (int i = 0; i < 4; i++) {
            growth[i] = w ? seen.change[i] / growth[i] : seen.change[i];
            free(seen.first[i]);
        }
        optim_job_close(&job);
    }
}

static void check_coordinates(void)
{
    double with[4], without[4];

    find_growth("", without);
    find_growth(", mup: 32", with);
    for (int i = 0; i < 4; i++) {
        ok(with[i] > 0.5 && with[i] < 2,
           "%s: 8 times the width changes %.2f times as much with mup",
           watched[i], with[i]);
        ok(without[i] > 2 * with[i], "%s: %.2f times without", watched[i],
           without[i]);
    }
}

int main(void)
{
    static const char gpt2[] = "family: gpt2, layers: 2, hidden: 48, heads: 4";
    static const char llama[] =
        "family: llama, layers: 2, hidden: 48, heads: 4, kv_heads: 2, "
        "head_dim: 10, qk_norm: true";
    static const char gpt2_base[] = "mup: 48, mup_layers: 2, mup_head_dim: 12";
    static const char llama_base[] = "mup: 48, mup_layers: 2, mup_head_dim: 10";

    check_numbers();
    check_base(gpt2, gpt2_base, "lr: 1e-2");
    check_base(llama, llama_base, "lr: 1e-2");
    check_base(gpt2, gpt2_base, "name: lion, lr: 1e-3");
    check_base(llama, llama_base, "name: adamw8bit, lr: 1e-2");
    check_rates("lr: 0.01, betas: [0, 0], weight_decay: 0.1");
    check_rates("name: lion, lr: 0.01, betas: [0, 0], weight_decay: 0.1");
    check_coordinates();
    return done_testing();
}
