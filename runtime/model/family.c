/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "runtime/model/internal.h"
#include "topology/job/model_size.h"

/* Dispatch to the functions of a model's family. */

int plait_model_reserve(struct plait_model *model, int slots, int micro_batch,
                        struct plait_error *err)
{
    return model->family->reserve(model, slots, micro_batch, err);
}

size_t plait_model_boundary(const struct plait_model *model, int micro_batch)
{
    return model->family->boundary(model, micro_batch);
}

void plait_model_expect(struct plait_model *model, int chunk, bool backward)
{
    model->state->next_chunk = chunk;
    model->state->next_backward = backward;
}

int plait_model_load(struct plait_model *model, int chunk, int slot,
                     const struct plait_batch *batch)
{
    return model->family->load(model, chunk, slot, batch);
}

int plait_model_forward(struct plait_model *model,
                        const struct plait_forward *f)
{
    return model->family->forward(model, f);
}

int plait_model_backward(struct plait_model *model,
                         const struct plait_backward *b)
{
    return model->family->backward(model, b, PLAIT_HALF_BOTH);
}

int plait_model_backward_input(struct plait_model *model,
                               const struct plait_backward *b)
{
    return model->family->backward(model, b, PLAIT_HALF_INPUT);
}

int plait_model_backward_weight(struct plait_model *model,
                                const struct plait_backward *b)
{
    return model->family->backward(model, b, PLAIT_HALF_WEIGHT);
}

int plait_model_weights_changed(struct plait_model *model,
                                struct plait_region *region)
{
    model->family->weights_changed(model, region);
    if (!model->state->handles_failed)
        return 0;
    errno = ENOMEM;
    return -1;
}

double plait_model_flops_per_token(const struct plait_model *model)
{
    return model->family->flops_per_token(model);
}

double plait_model_flops_masked(const struct plait_model *model)
{
    const struct plait_model_config *c = &model->config->model;

    if (plait_is_image_model(c))
        return 0;
    return 6.0 * c->layers * c->heads * plait_model_score_width(c) *
           c->seq_len * plait_model_reach(c);
}
