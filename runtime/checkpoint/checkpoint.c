/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint_private.h"

/* What save and load share: the slices of this rank. */

static void describe_slice(struct plait_tensor_slice *slice,
                           const struct plait_tensor *t, size_t first,
                           size_t count)
{
    int axis = t->ndim == 1 ? 1 : t->tp_axis;

    memset(slice, 0, sizeof(*slice));
    snprintf(slice->name, sizeof(slice->name), "%s", t->name);
    slice->shape[0] = slice->box[0] = 1;
    for (int i = 0; i < t->ndim; i++) {
        slice->shape[2 - t->ndim + i] = t->shape[i];
        slice->box[2 - t->ndim + i] = t->local_shape[i];
    }
    if (t->tp_axis >= 0)
        slice->begin[axis] = t->local_first;
    slice->first = first;
    slice->count = count;
}

static void describe_piece(struct plait_tensor_slice *slice,
                           const struct plait_optim_piece *p)
{
    describe_slice(slice, p->tensor, p->first, p->count);
    snprintf(slice->name, sizeof(slice->name), "%s%s%s%s%s", p->owner,
             p->state ? "optim." : "", p->state ? p->state : "",
             p->state ? "." : "", p->tensor->name);
    if (!p->shape[0])
        return;
    for (int i = 0; i < 2; i++) {
        slice->shape[i] = slice->box[i] = p->shape[i];
        slice->begin[i] = 0;
    }
}

static int refuse_memory(struct plait_error *err)
{
    errno = ENOMEM;
    return plait_errorf(err, "checkpoint: out of memory");
}

int plait_tensor_slices_create(const struct plait_optim_piece *pieces, int n,
                               struct plait_tensor_slice **slices,
                               struct plait_error *err)
{
    struct plait_tensor_slice *p = calloc(n + 1, sizeof(*p));

    if (!p)
        return refuse_memory(err);
    for (int i = 0; i < n; i++)
        describe_piece(&p[i], &pieces[i]);
    *slices = p;
    return n;
}

int plait_tensor_slices_create_weights(const struct plait_shards *shards,
                                       struct plait_tensor_slice **slices,
                                       struct plait_weights_at **data,
                                       struct plait_error *err)
{
    const struct plait_model *model = shards->model;
    size_t size = plait_dtype_size(model->type), first, count;
    int n = 0;

    *slices = calloc(model->ntensors + 1, sizeof(**slices));
    *data = calloc(model->ntensors + 1, sizeof(**data));
    if (!*slices || !*data)
        return refuse_memory(err);
    for (int i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];
        const struct plait_shard *s = &shards->shard[t->region];

        if (t->load) /* no weight, and for training alone */
            continue;
        if (t->balance) { /* which each rank has whole */
            describe_slice(&(*slices)[n], t, 0, t->count);
            (*data)[n++] =
                (struct plait_weights_at){model->exact + t->exact, PLAIT_F32};
            continue;
        }
        if (!plait_shard_slice(s, t, &first, &count))
            continue;
        describe_slice(&(*slices)[n], t, first, count);
        (*data)[n++] = (struct plait_weights_at){
            (char *)s->weight + (t->offset + first - s->first) * size,
            model->type};
    }
    return n;
}
