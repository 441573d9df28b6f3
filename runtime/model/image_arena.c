/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/model/arena.h"
#include "runtime/model/image.h"

/* Activations and work space in one allocation, as in arena.c: what there is,
 * is in the table of topology/job/held.h. */

static void place_block(struct plait_arena *a,
                        const struct plait_image_block *b,
                        struct plait_image_kept *kept)
{
    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++)
        if (b->unit[i].conv.O) {
            a->z.channels = (double)b->unit[i].conv.O;
            a->z.unit =
                (double)plait_conv_rows(&b->unit[i].conv) * a->z.channels;
            plait_arena_place(a, PLAIT_HELD_SET(IMAGE_UNIT), &kept->unit[i]);
        }
    a->z.out = (double)b->out;
    if (b->kind == PLAIT_IMAGE_DENSE || b->pooled)
        plait_arena_place(a, PLAIT_HELD_SET(IMAGE_OUT), kept);
    else if (b->nunits)
        kept->out = kept->unit[b->nunits - 1].post;
}

static void place_slot(struct plait_arena *a, const struct plait_model *m,
                       int chunk, struct plait_image_slot *slot)
{
    const struct plait_model_state *s = m->state;
    const struct plait_image_block *b = m->image->block + s->chunk_first[chunk];
    int n = s->chunk_first[chunk + 1] - s->chunk_first[chunk];
    const float *x;

    a->z.first_in = (double)b[0].in;
    a->z.last_in = (double)b[n - 1].in;
    plait_arena_place(a, PLAIT_HELD_SET(IMAGE_SLOT), slot);
    x = slot->input;
    for (int i = 0; i < n; i++) {
        slot->kept[i].x = x;
        place_block(a, &b[i], &slot->kept[i]);
        x = slot->kept[i].out;
    }
}

static void place_all(struct plait_arena *a, struct plait_model *m)
{
    struct plait_image_state *s = m->image;

    plait_arena_place(a, PLAIT_HELD_SET(IMAGE_WORK), s);
    for (int chunk = 0; chunk < m->chunks; chunk++)
        for (int i = 0; i < m->state->nslots; i++)
            place_slot(a, m, chunk, &s->slots[chunk * m->state->nslots + i]);
}

static int make_slots(struct plait_model *m, int slots)
{
    struct plait_model_state *s = m->state;

    s->nslots = slots;
    m->image->slots =
        calloc((size_t)m->chunks * slots, sizeof(*m->image->slots));
    if (!m->image->slots)
        return -1;
    for (int i = 0; i < m->chunks * slots; i++) {
        m->image->slots[i].kept =
            calloc(s->nblocks, sizeof(*m->image->slots[i].kept));
        if (!m->image->slots[i].kept)
            return -1;
    }
    return 0;
}

int plait_image_reserve(struct plait_model *model, int slots, int micro_batch,
                        struct plait_error *err)
{
    const struct plait_mesh *mesh = model->mesh;
    struct plait_arena a;

    plait_image_release(model);
    model->image->N = (size_t)micro_batch;
    plait_arena_open(&a, model, model->image->N, micro_batch);
    plait_rank_sizes_widest(&a.z, model->config, mesh->layout.size[PLAIT_PP],
                            mesh->coord.at[PLAIT_PP]);
    if (make_slots(model, slots) < 0)
        goto error;
    place_all(&a, model);
    if (plait_arena_alloc(&a, model) < 0)
        goto error;
    place_all(&a, model);
    return 0;
error:
    plait_image_release(model);
    errno = ENOMEM;
    return plait_errorf(err,
                        "out of memory: the activations of %d micro-batches "
                        "of %d images need %.0f MiB",
                        slots, micro_batch, floor(a.at / 1048576));
}

void plait_image_release(struct plait_model *model)
{
    struct plait_image_state *s = model->image;

    if (!s)
        return;
    for (int i = 0; s->slots && i < model->chunks * model->state->nslots; i++)
        free(s->slots[i].kept);
    free(s->slots);
    s->slots = NULL;
    model->state->nslots = 0;
    plait_mesh_free(model->mesh, model->state->arena);
    model->state->arena = NULL;
}
