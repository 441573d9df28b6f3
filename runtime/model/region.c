/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/internal.h"

/* Regions as their owner uses them: new weights in, complete gradients out. */

/* Whether weights are rounded to fp8 once after they change. Not with ZeRO 3,
 * which gathers them for a short time only. */
static bool rounds_once(const struct plait_model *m)
{
    return m->config->train.precision == PLAIT_FP8 &&
           m->config->parallel.zero < 3 && m->mesh->ops->fp8_weight;
}

void plait_matrix_refresh(struct plait_model *m, struct plait_matrix *w,
                          const struct plait_region *region)
{
    const void *data;

    if (!w->O || &m->regions[w->region] != region)
        return;
    data = (const char *)region->weight + w->offset * plait_dtype_size(m->type);
    if (w->handle) {
        m->mesh->ops->weight_changed(w->handle, data);
        return;
    }
    w->handle = m->mesh->ops->weight_create(
        m->mesh->dev, &(struct plait_weight_data){m->type, w->O, w->C, data});
    if (!w->handle)
        m->state->handles_failed = true;
}

void plait_transformer_weights_changed(struct plait_model *model,
                                       struct plait_region *region)
{
    struct plait_model_state *s = model->state;

    for (int i = 0; i < s->nproducts; i++) {
        struct plait_matrix *w = s->matrix[i];

        plait_matrix_refresh(model, w, region);
        /* errors are left in the queue */
        if (w->linear && &model->regions[w->region] == region && w->handle &&
            rounds_once(model))
            model->mesh->ops->fp8_weight(model->mesh->q, w->handle);
    }
}

/* Sums the gradients of key/value heads that several tp ranks share. Each rank
 * puts its gradient at its head's place in a buffer of all heads, zero
 * elsewhere, so that one sum over the whole tp group adds the copies. */
static int sum_copies(struct plait_model *m, const struct plait_tensor *t,
                      float *grad)
{
    const struct plait_mesh *mesh = m->mesh;
    float *all = m->state->scratch.replicas;
    size_t n = t->shape[0] * t->shape[1];
    float *mine = all + t->local_first * t->shape[1];

    if (mesh->ops->fill_zero(mesh->q, all, n * sizeof(*all)) < 0 ||
        mesh->ops->copy(mesh->q, mine, grad, t->count * sizeof(*all)) < 0 ||
        plait_comm_all_reduce(mesh->group[PLAIT_GROUP_TP],
                              &(struct plait_buffers){all, all, n, PLAIT_F32},
                              PLAIT_SUM, mesh->q, NULL) < 0)
        return -1;
    return mesh->ops->copy(mesh->q, grad, mine, t->count * sizeof(*all));
}

static int clear_region(struct plait_model *m, struct plait_region *region,
                        size_t from, size_t to)
{
    if (from == to)
        return 0;
    return m->mesh->ops->fill_zero(m->mesh->q, region->grad + from,
                                   (to - from) * sizeof(float));
}

int plait_model_begin_gradient(struct plait_model *model,
                               struct plait_region *region)
{
    size_t at = 0;

    for (int i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];

        if (&model->regions[t->region] != region || t->product < 0)
            continue;
        model->state->unmade[t->product] = true;
        if (clear_region(model, region, at, t->offset) < 0)
            return -1;
        at = t->offset + t->count;
    }
    return clear_region(model, region, at, region->count);
}

/* Zeroes gradients that were to be overwritten by a product and were not. */
static int clear_unmade(struct plait_model *m, struct plait_region *region)
{
    bool *unmade = m->state->unmade;

    for (int i = 0; i < m->ntensors; i++) {
        const struct plait_tensor *t = &m->tensors[i];

        if (&m->regions[t->region] == region && t->product >= 0 &&
            unmade[t->product] &&
            clear_region(m, region, t->offset, t->offset + t->count) < 0)
            return -1;
    }
    for (int i = 0; i < m->ntensors; i++)
        if (&m->regions[m->tensors[i].region] == region &&
            m->tensors[i].product >= 0)
            unmade[m->tensors[i].product] = false;
    return 0;
}

int plait_model_complete_gradient(struct plait_model *model,
                                  struct plait_region *region)
{
    if (clear_unmade(model, region) < 0)
        return -1;
    for (int i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];
        float *grad = region->grad + t->offset;
        int rc = 0;

        if (&model->regions[t->region] != region)
            continue;
        if (t->sequence_partial)
            rc = plait_comm_all_reduce(
                model->mesh->group[PLAIT_GROUP_TP],
                &(struct plait_buffers){grad, grad, t->count, PLAIT_F32},
                PLAIT_SUM, model->mesh->q, NULL);
        else if (t->tp_axis == 0 && t->tp_replicas > 1)
            rc = sum_copies(model, t, grad);
        if (rc < 0)
            return -1;
    }
    return 0;
}
