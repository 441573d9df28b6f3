/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/plan/traffic.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "topology/job/image_shape.h"

double plait_traffic_microbatches(const struct plait_job_config *c,
                                  const struct plait_layout *layout)
{
    double n = (double)c->train.global_batch /
               ((double)layout->size[PLAIT_DP] * c->train.micro_batch);

    return n < 1 ? 1 : n;
}

/* Bytes of gradient and, where shards are gathered, of weight that every
 * parameter sends in a step, as if in all-reduces of them. Sharded gradients
 * are reduced, sharded weights gathered, for each of the `m` micro-batches.
 * Replicas that train apart send differences of weights. */
static double bytes_per_parameter(const struct plait_job_config *c,
                                  const int *size, double m)
{
    double gradient = c->parallel.grad_reduce == PLAIT_GRAD_BF16 ? 2 : 4;
    double weight = plait_precision_size(c->train.precision);

    if (plait_sync_parts(&c->sync))
        return plait_sync_sent(&c->sync, size[PLAIT_DP]);
    switch (c->parallel.zero) {
    case 0:
        return gradient;
    case 2:
        return (m * gradient + weight) / 2;
    case 3: /* gathered for the forward and again for the backward pass */
        return m * (gradient + 2 * weight) / 2;
    default:
        return (gradient + weight) / 2;
    }
}

/* Parameters of a GPU, as many as an all-reduce over all its replicas sends: an
 * expert has ep times fewer of them. */
static double reduced_parameters(const struct plait_model_config *m,
                                 const int *size)
{
    double n = (double)size[PLAIT_DP] * size[PLAIT_CP], ep = size[PLAIT_EP];
    double experts = plait_model_routed(m), sum = plait_model_parameters(m);

    if (n > 1)
        sum += experts * ((n - ep) / (n - 1) / ep - 1);
    return sum / ((double)size[PLAIT_TP] * size[PLAIT_PP]);
}

/* Rows of tokens that one rank of a tp group sends to experts: all rows, or, in
 * other trainers with sequence parallelism, only its own part of them. */
static double dispatched(const struct plait_job_config *c, double rows, int tp)
{
    bool own = c->framework != PLAIT_FRAMEWORK_PLAIT && c->parallel.sequence;

    return rows / (own ? tp : 1);
}

/* How often the bytes of keys and values go around a context-parallel group for
 * their gradients, which plait-train adds up in fp32. */
static double gradient_passes(const struct plait_job_config *c)
{
    return c->framework == PLAIT_FRAMEWORK_PLAIT
               ? 4.0 / plait_precision_size(c->train.precision)
               : 1;
}

void plait_traffic_set(struct plait_traffic *t,
                       const struct plait_job_config *c,
                       const struct plait_layout *layout)
{
    const int *size = layout->size;
    const struct plait_model_config *m = &c->model;
    double element = plait_precision_size(c->train.precision);
    double tokens = (double)c->train.micro_batch * m->seq_len / size[PLAIT_CP];
    double microbatches = plait_traffic_microbatches(c, layout);
    double layers =
        (double)(m->layers + m->mtp_layers) / size[PLAIT_PP] * microbatches;
    int again = c->parallel.recompute == PLAIT_RECOMPUTE_FULL;
    double heads = fmax(1, (double)m->kv_heads / size[PLAIT_TP]);

    memset(t, 0, sizeof(*t));
    t->bytes[PLAIT_TP] = element * tokens * m->hidden;
    t->calls[PLAIT_TP] = layers * (again ? 6 : 4);
    t->bytes[PLAIT_CP] = 2 * element * tokens * plait_model_head_dim(m) * heads;
    t->calls[PLAIT_CP] = layers * (again + 2 + gradient_passes(c));
    if (m->experts > 0) {
        t->bytes[PLAIT_EP] = element * dispatched(c, tokens, size[PLAIT_TP]) *
                             m->hidden * m->experts_top_k;
        t->calls[PLAIT_EP] =
            layers * plait_model_moe_layers(m) / m->layers * (again ? 6 : 4);
    }
    t->bytes[PLAIT_DP] = bytes_per_parameter(c, size, microbatches) *
                         reduced_parameters(m, size);
    t->calls[PLAIT_DP] = plait_sync_share(&c->sync, c->train.steps);
    t->bytes[PLAIT_PP] = element * tokens * m->hidden /
                         (c->parallel.sequence ? size[PLAIT_TP] : 1);
    t->calls[PLAIT_PP] = microbatches * c->parallel.virtual_stages;
    if (!plait_is_image_model(m))
        return;
    t->calls[PLAIT_TP] = t->calls[PLAIT_CP] = 0;
    t->bytes[PLAIT_TP] = t->bytes[PLAIT_CP] = 0;
    t->bytes[PLAIT_PP] = element * tokens * plait_image_boundary(m);
}

void plait_traffic_default(struct plait_traffic *t,
                           const struct plait_layout *layout)
{
    struct plait_job_config c;

    memset(&c, 0, sizeof(c));
    c.model = (struct plait_model_config){.family = PLAIT_LLAMA,
                                          .layers = 32,
                                          .hidden = 4096,
                                          .heads = 32,
                                          .kv_heads = 32,
                                          .ffn = 11008,
                                          .vocab = 32000,
                                          .seq_len = 4096};
    if (layout->size[PLAIT_EP] > 1) {
        c.model.experts = layout->size[PLAIT_EP];
        c.model.experts_top_k = 2;
    }
    c.parallel.virtual_stages = 1;
    c.train.precision = PLAIT_BF16;
    c.train.micro_batch = 1;
    c.train.global_batch = 8 * layout->size[PLAIT_PP] * layout->size[PLAIT_DP];
    plait_traffic_set(t, &c, layout);
}
