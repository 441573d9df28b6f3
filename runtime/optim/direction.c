/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "runtime/optim/optim_private.h"

static const struct plait_direction *kind_of(const struct plait_optim *optim)
{
    return optim->rule->direction;
}

/* Adjacent slices with states get adjacent memory, so that one run can update
 * them. */
static size_t place_states(struct plait_optim *optim, int k, float *states)
{
    size_t at = 0;

    for (int i = 0; i < optim->nslices; i++) {
        struct plait_optim_slice *s = &optim->slices[i];

        if (kind_of(optim)->nstates(s->tensor) <= k)
            continue;
        if (states)
            s->state[k] = states + at;
        at += s->count;
    }
    return at;
}

static int make_states(struct plait_optim *optim, struct plait_error *err)
{
    struct plait_mesh *mesh = optim->model->mesh;

    for (int k = 0; k < PLAIT_OPTIM_STATES; k++) {
        size_t n = place_states(optim, k, NULL);

        if (n == 0)
            continue;
        optim->own_states[k] =
            mesh->ops->alloc(mesh->dev, n * sizeof(*optim->own_states[k]));
        if (!optim->own_states[k])
            return plait_errorf(err,
                                "out of memory for %zu numbers of the "
                                "optimizer",
                                n);
        place_states(optim, k, optim->own_states[k]);
    }
    return 0;
}

int plait_directions_create(struct plait_optim *optim, struct plait_error *err)
{
    if (!kind_of(optim))
        return 0;
    if (make_states(optim, err) < 0)
        return -1;
    return kind_of(optim)->create(optim, &optim->own, err);
}

int plait_directions_open(struct plait_optim *optim, struct plait_error *err)
{
    if (!kind_of(optim) || !kind_of(optim)->open)
        return 0;
    return kind_of(optim)->open(optim, optim->own, err);
}

void plait_directions_close(struct plait_optim *optim)
{
    struct plait_mesh *mesh = optim->model->mesh;

    if (kind_of(optim) && optim->own)
        kind_of(optim)->destroy(optim, optim->own);
    for (int k = 0; k < PLAIT_OPTIM_STATES; k++)
        mesh->ops->free(mesh->dev, optim->own_states[k]);
}

int plait_directions_make(struct plait_optim *optim, float scale, int64_t step)
{
    if (!kind_of(optim))
        return 0;
    return kind_of(optim)->make(optim, optim->own, scale, step);
}

int plait_directions_pieces(const struct plait_optim *optim,
                            struct plait_optim_piece *pieces)
{
    if (!kind_of(optim))
        return 0;
    return kind_of(optim)->pieces(optim, optim->own, pieces);
}

bool plait_directions_take(const struct plait_optim *optim, int i)
{
    return kind_of(optim) && kind_of(optim)->takes(optim->slices[i].tensor);
}

float *plait_optim_slice_grad(const struct plait_optim *optim,
                              const struct plait_optim_slice *slice)
{
    const struct plait_shard *s = &optim->shards->shard[slice->tensor->region];

    return s->grad + slice->at;
}
