/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* What save and load share: the pieces of this rank. */

/* Every slice is three tensors: the weight under its own name, and the
 * moments. */
static const char *const prefixes[PLAIT_PIECES_PER_SLICE] = {"", "optim.m.",
                                                             "optim.v."};

static void describe(struct plait_piece *piece,
                     const struct plait_optim_slice *slice, int which)
{
    const struct plait_tensor *t = slice->tensor;
    int axis = t->ndim == 1 ? 1 : t->tp_axis, i;

    memset(piece, 0, sizeof(*piece));
    snprintf(piece->name, sizeof(piece->name), "%s%s", prefixes[which],
             t->name);
    piece->shape[0] = piece->box[0] = 1;
    for (i = 0; i < t->ndim; i++) {
        piece->shape[2 - t->ndim + i] = t->shape[i];
        piece->box[2 - t->ndim + i] = t->local_shape[i];
    }
    if (t->tp_axis >= 0)
        piece->begin[axis] = t->local_first;
    piece->first = slice->first;
    piece->count = slice->count;
}

int plait_pieces_create(const struct plait_optim *optim,
                        struct plait_piece **pieces, float ***data,
                        struct plait_error *err)
{
    const struct plait_optim_slice *slices;
    int n = plait_optim_slices(optim, &slices), i, k;
    size_t total = (size_t)n * PLAIT_PIECES_PER_SLICE;
    struct plait_piece *p = calloc(total + 1, sizeof(*p));
    float **d = calloc(total + 1, sizeof(*d));

    if (!p || !d) {
        free(p);
        free(d);
        errno = ENOMEM;
        return plait_errorf(err, "checkpoint: out of memory");
    }
    for (i = 0; i < n; i++) {
        for (k = 0; k < PLAIT_PIECES_PER_SLICE; k++)
            describe(&p[i * PLAIT_PIECES_PER_SLICE + k], &slices[i], k);
        d[i * PLAIT_PIECES_PER_SLICE] = slices[i].master;
        d[i * PLAIT_PIECES_PER_SLICE + 1] = slices[i].m;
        d[i * PLAIT_PIECES_PER_SLICE + 2] = slices[i].v;
    }
    *pieces = p;
    *data = d;
    return (int)total;
}
