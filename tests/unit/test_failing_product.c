/* SPDX-License-Identifier: Apache-2.0 */
/* Where one of the products of a step fails, the step fails: it must not go on
 * with stale memory. */
#include "model_run.h"

static int (*forward)(struct plait_queue *, const struct plait_linear *);
static int products, fails;

static int counted(struct plait_queue *q, const struct plait_linear *l)
{
    return products++ == fails ? -1 : forward(q, l);
}

/* Of the forward pass, whose product number `failing` fails; -1: none. */
static int pass(const struct plait_job_config *config, int failing)
{
    static int32_t tokens[64], targets[64];
    struct plait_batch b = make_batch(config, tokens, targets);
    struct plait_ops ops = *plait_ops_cpu();
    struct run r = {0};
    int rc;

    forward = ops.linear_forward;
    ops.linear_forward = counted;
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, &ops);
    open_model(&r, config, 1);
    products = 0;
    fails = failing;
    rc = plait_model_forward(
        r.model,
        &(struct plait_forward){.batch = &b, .loss = r.loss, .train = true});
    close_run(&r);
    return rc;
}

static void check(enum plait_family family, double cap)
{
    struct plait_job_config config;
    int n, failed = 0;

    small_config(&config, family);
    config.model.logit_softcap = cap;
    ok(pass(&config, -1) == 0, "%s, cap %g: a step", plait_family_names[family],
       cap);
    n = products;
    for (int i = 0; i < n; i++)
        failed += pass(&config, i) < 0;
    ok(n > 4 && failed == n, "each of its %d products fails it: %d", n, failed);
}

int main(void)
{
    check(PLAIT_GPT2, 0);
    check(PLAIT_LLAMA, 0);
    check(PLAIT_LLAMA, 30);
    return done_testing();
}
