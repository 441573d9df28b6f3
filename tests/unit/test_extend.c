/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "model_run.h"

/* Texts that grow: with kept keys and values, the logits equal those of the
 * whole text computed anew. */

#define LENGTH 16

static int32_t tokens[2 * LENGTH], targets[2 * LENGTH];

static void open_texts(struct run *r, const struct plait_job_config *config,
                       int texts)
{
    struct plait_error err;

    place(&r->mesh, 1, 0, 1, 0);
    open_device(r, plait_ops_cpu());
    open_model(r, config, 1);
    if (plait_model_reserve_texts(r->model, texts, LENGTH, 2 * LENGTH, &err) <
        0)
        give_up("texts", &err);
}

/* Adds tokens first .. first + count - 1 of `from` to a text. */
static void extend(struct run *r, int text, const int32_t *from, int first,
                   int count, float *logits)
{
    const struct plait_addition add = {text, first, count, true};
    const struct plait_additions all = {1, &add, from + first};

    if (plait_model_extend(r->model, &all, NULL, NULL, logits) < 0)
        give_up("extend", NULL);
}

static double difference(const float *x, const float *y, int n)
{
    double worst = 0;

    for (int i = 0; i < n; i++)
        if (!(fabs(x[i] - y[i]) <= worst))
            worst = fabs(x[i] - y[i]);
    return worst;
}

/* -log softmax(x)[target] */
static double loss_of(const float *x, int n, int target)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += exp(x[i]);
    return log(sum) - x[target];
}

static struct plait_job_config make_config(enum plait_family family,
                                           int experts, double capacity)
{
    struct plait_job_config config;

    small_config(&config, family);
    config.model.seq_len = LENGTH;
    config.model.experts = experts;
    config.model.experts_capacity = capacity;
    config.train.micro_batch = 1;
    return config;
}

static void test_one(enum plait_family family, int experts, double capacity)
{
    struct plait_job_config config = make_config(family, experts, capacity);
    int n = config.model.vocab;
    float *grown = malloc(n * sizeof(*grown)),
          *anew = malloc(n * sizeof(*anew));
    double worst = 0, sum = 0, loss;
    struct run r = {0};
    struct plait_batch b;

    open_texts(&r, &config, 2);
    b = make_batch(&config, tokens, targets);
    extend(&r, 0, tokens, 0, 5, grown);
    for (int len = 5; len < LENGTH; len++) {
        extend(&r, 1, tokens, 0, len, anew);
        worst = fmax(worst, difference(grown, anew, n));
        extend(&r, 0, tokens, len, 1, grown);
    }
    ok(worst < 1e-4,
       "family %d, %d experts, capacity %g: as computed anew "
       "(worst difference %g)",
       family, experts, capacity, worst);
    for (int len = 1; len <= LENGTH; len++) {
        extend(&r, 0, tokens, len - 1, 1, grown);
        if (targets[len - 1] >= 0)
            sum += loss_of(grown, n, targets[len - 1]);
    }
    if (plait_model_reserve(r.model, 1, 1, NULL) < 0 ||
        plait_model_forward(
            r.model, &(struct plait_forward){.batch = &b, .loss = r.loss}) < 0)
        give_up("forward", NULL);
    loss = take_loss(&r);
    ok(fabs(sum - loss) < 1e-5 * loss, "and the loss of training (%g, %g)", sum,
       loss);
    free(grown);
    free(anew);
    close_run(&r);
}

/* Two texts of different lengths in one pass give the same as each alone. */
static void test_two(enum plait_family family, int experts)
{
    struct plait_job_config config = make_config(family, experts, 0);
    const struct plait_addition add[] = {{1, 3, 1, true}, {0, 7, 4, true}};
    const struct plait_additions both = {2, add, tokens + LENGTH};
    int n = config.model.vocab;
    float *x = malloc(2 * n * sizeof(*x)), *y = malloc(2 * n * sizeof(*y));
    struct run r = {0};

    open_texts(&r, &config, 2);
    make_batch(&config, tokens, targets);
    for (int i = 0; i < LENGTH; i++)
        tokens[LENGTH + i] = (5 * i + 2) % n;
    extend(&r, 0, tokens, 0, 7, x);
    extend(&r, 1, tokens, 0, 3, x);
    extend(&r, 1, tokens + LENGTH - 3, 3, 1, x);
    extend(&r, 0, tokens + LENGTH + 1 - 7, 7, 4, x + n);
    if (plait_model_extend(r.model, &both, NULL, NULL, y) < 0)
        give_up("extend", NULL);
    ok(difference(x, y, 2 * n) < 1e-4,
       "family %d, %d experts: two texts in one pass", family, experts);
    free(x);
    free(y);
    close_run(&r);
}

static void test_limits(void)
{
    static const struct plait_addition wrong[] = {
        {2, 0, 1, true},          {-1, 0, 1, true}, {0, -1, 1, true},
        {0, LENGTH - 1, 2, true}, {0, 0, 0, true},
    };
    struct plait_job_config config = make_config(PLAIT_LLAMA, 0, 0);
    const struct plait_model_config *m = &config.model;
    struct run r = {0};
    float logits[512];

    open_texts(&r, &config, 2);
    make_batch(&config, tokens, targets);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const struct plait_additions all = {1, &wrong[i], tokens};

        errno = 0;
        ok(plait_model_extend(r.model, &all, NULL, NULL, logits) < 0 &&
               errno == EINVAL,
           "text %d, tokens %d and %d more: refused", wrong[i].text,
           wrong[i].first, wrong[i].count);
    }
    ok(plait_model_cache_bytes(r.model, 2, LENGTH) ==
           (size_t)m->layers * 2 * LENGTH * 2 * m->kv_heads *
               (m->hidden / m->heads) * sizeof(float),
       "keys and values take what they say");
    close_run(&r);
}

int main(void)
{
    static const enum plait_family families[] = {PLAIT_GPT2, PLAIT_LLAMA,
                                                 RICH_LLAMA, LATENT_LLAMA};

    for (int i = 0; i < 4; i++) {
        test_one(families[i], 0, 0);
        test_one(families[i], 4, 0);
        test_one(families[i], 4, 0.5);
        test_two(families[i], 0);
        test_two(families[i], 4);
    }
    test_limits();
    return done_testing();
}
