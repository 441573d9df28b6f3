/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "model_run.h"

/* A model with Granite's constants is the model without them whose weights are
 * multiplied instead, and each gradient follows by the chain rule. */

static const struct {
    const char *end; /* of the weights' names */
    double factor;
} factors[] = {{"embedding.weight", 12},     {"attention.q.weight", 0.25},
               {"attention.q.bias", 0.25},   {"attention.out.weight", 0.22},
               {"attention.out.bias", 0.22}, {"mlp.down.weight", 0.22},
               {"head.weight", 1 / 8.0}};

static double factor_of(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
        size_t m = strlen(factors[i].end);

        if (n >= m && strcmp(name + n - m, factors[i].end) == 0)
            return factors[i].factor;
    }
    return 1;
}

/* One step of a model whose weights are multiplied by their factors. */
static double step(struct run *r, const struct plait_job_config *config,
                   bool multiplied)
{
    static int32_t tokens[64], targets[64];
    struct plait_batch b = make_batch(config, tokens, targets);

    place(&r->mesh, 1, 0, 1, 0);
    open_device(r, plait_ops_cpu());
    open_model(r, config, 1);
    for (int i = 0; multiplied && i < r->model->ntensors; i++) {
        const struct plait_tensor *t = &r->model->tensors[i];
        float *v = malloc(t->count * sizeof(*v));

        lively(t, v);
        for (size_t k = 0; k < t->count; k++)
            v[k] *= (float)factor_of(t->name);
        set_tensor(r, t, v);
        free(v);
    }
    if (plait_model_forward(r->model, &(struct plait_forward){.batch = &b,
                                                              .loss = r->loss,
                                                              .train = true}) <
            0 ||
        plait_model_backward(r->model, &(struct plait_backward){0}) < 0)
        give_up("step", NULL);
    return take_loss(r);
}

/* The largest difference of a tensor's gradients, relative to the largest. */
static double compare(const struct run *a, const struct run *b, int i)
{
    const struct plait_tensor *t = &a->model->tensors[i];
    float *x = grad_of(a, t), *y = grad_of(b, &b->model->tensors[i]);
    double worst = 0, most = 0;

    for (size_t k = 0; k < t->count; k++) {
        double d = fabs(x[k] - factor_of(t->name) * y[k]);

        worst = d <= worst ? worst : d; /* NaN is the worst */
        most = fmax(most, fabs(x[k]));
    }
    free(x);
    free(y);
    return worst / most;
}

int main(void)
{
    struct plait_job_config config;
    struct plait_model_config *m = &config.model;
    struct run with = {0}, without = {0};
    double loss, want, worst = 0;

    small_config(&config, PLAIT_LLAMA);
    m->attention_bias = PLAIT_BIAS_ALL;
    m->norm_eps = 0.1; /* which must count as much in both */
    want = step(&without, &config, true);
    m->embedding_multiplier = 12;
    m->attention_multiplier = 0.25 / sqrt(m->hidden / m->heads);
    m->residual_multiplier = 0.22;
    m->logits_scaling = 8;
    loss = step(&with, &config, false);
    ok(fabs(loss - want) < 1e-6 * want, "the same loss, %.9g and %.9g", loss,
       want);
    for (int i = 0; i < with.model->ntensors; i++)
        worst = fmax(worst, compare(&with, &without, i));
    ok(with.model->ntensors == without.model->ntensors && worst < 1e-5,
       "and gradients by the chain rule, within %g of the largest", worst);
    close_run(&with);
    close_run(&without);
    return done_testing();
}
