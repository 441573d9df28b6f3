/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends of a model: the embedding, and the loss. */
#include <string.h>

#include "gradients.h"
#include "kernels/xent.h"

static float *target;
static double *total;

/* {N, T, C, first, count, pos0}; inputs wte, wpe */
static void embedding_forward(float *out)
{
    ops->embedding_forward(q, &(struct plait_embedding_forward){
                                  .out = out,
                                  .tokens = tokens,
                                  .wte = x[0],
                                  .wpe = x[1],
                                  .first = s[3],
                                  .count = s[4],
                                  .at = {.T = (size_t)s[1], .pos0 = s[5]},
                                  .N = (size_t)s[0],
                                  .C = (size_t)s[2]});
}

static void embedding_backward(void)
{
    ops->embedding_backward(q, &(struct plait_embedding_backward){
                                   .dwte = dx[0],
                                   .dwpe = dx[1],
                                   .tokens = tokens,
                                   .dout = r,
                                   .first = s[3],
                                   .count = s[4],
                                   .at = {.T = (size_t)s[1], .pos0 = s[5]},
                                   .N = (size_t)s[0],
                                   .C = (size_t)s[2]});
}

static struct plait_xent xent_of(const int32_t *targets, int N, float scale)
{
    return (struct plait_xent){.type = PLAIT_F32,
                               .N = (size_t)N,
                               .stride = (size_t)s[2],
                               .count = s[1],
                               .logits = dx[0],
                               .targets = targets,
                               .max = stat[0],
                               .sum = stat[1],
                               .target = target,
                               .scale = scale,
                               .cap = (float)s[3],
                               .loss = total};
}

/* In place, if the logits have one. */
static void cap_logits(const struct plait_xent *c)
{
    if (c->cap > 0)
        ops->softcap(q, &(struct plait_scale){.type = PLAIT_F32,
                                              .x = c->logits,
                                              .s = c->cap,
                                              .n = c->N * c->stride});
}

/* {N, V, stride, cap}: the outputs are the losses of the rows; r is 1 */
static void xent_forward(float *out)
{
    for (size_t i = 0; i < (size_t)s[0]; i++) {
        struct plait_xent c = xent_of(tokens + i, 1, 1);

        *total = 0;
        memcpy(dx[0], x[0] + i * c.stride, c.stride * sizeof(float));
        cap_logits(&c);
        ops->xent_stats(q, &c);
        ops->xent_backward(q, &c);
        settle();
        out[i] = (float)*total;
    }
}

static void xent_backward(void)
{
    struct plait_xent c = xent_of(tokens, s[0], 0.25f);

    *total = 0;
    for (size_t i = 0; i < (size_t)s[0]; i++)
        r[i] = 0.25f;
    memcpy(dx[0], x[0], (size_t)(s[0] * s[2]) * sizeof(float));
    cap_logits(&c);
    ops->xent_stats(q, &c);
    ops->xent_backward(q, &c);
    settle();
    memcpy(dx[1], dx[0], (size_t)(s[0] * s[2]) * sizeof(float));
}

static void xent_check(int cap)
{
    struct check c = {.name = "xent_backward",
                      .outputs = 5,
                      .forward = xent_forward,
                      .shape = {5, 7, 9, cap}};

    s = c.shape;
    for (size_t i = 0; i < 45; i++)
        x[0][i] = 3 * uniform();
    for (size_t i = 0; i < 5; i++)
        tokens[i] = (int32_t)i;
    tokens[3] = -1; /* masked */
    xent_backward();
    report(count_wrong(&c, 45, 1e-5) == 0,
           "xent_backward: 45 gradients, padding and a masked row%s",
           cap ? ", of capped logits" : "");
}

static const struct check checks[] = {
    {"embedding",
     {24, 48},
     96,
     embedding_forward,
     embedding_backward,
     {12, 6, 8, 2, 3, 0}},
};

void check_tokens(void)
{
    target = reserve(sizeof(*stat));
    total = reserve(sizeof(*total));
    run_checks(checks, sizeof(checks) / sizeof(*checks));
    xent_check(0);
    xent_check(2);
}
