/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/model/image.h"

/* Activations and work space in one allocation. Placed twice, as in arena.c: to
 * measure the size, then to set the pointers. */

#define ARENA_ALIGN 256

struct arena {
    char *base; /* NULL: only measure */
    size_t at;
};

static void *take(struct arena *a, size_t numbers)
{
    size_t at = a->at, bytes = numbers * sizeof(float);

    a->at += (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    return a->base ? a->base + at : NULL;
}

size_t plait_image_groups(const struct plait_model_config *c, size_t N)
{
    return c->norm == PLAIT_NORM_GHOST ? N / (size_t)c->ghost_batch : 1;
}

static void place_unit(struct arena *a, size_t N, size_t groups,
                       const struct plait_unit *u, struct plait_unit_kept *kept)
{
    size_t n = N * plait_conv_rows(&u->conv) * u->conv.O;

    kept->pre = take(a, n);
    kept->post = take(a, n);
    kept->stats = take(a, 2 * groups * u->conv.O);
}

static void place_block(struct arena *a, const struct plait_model *m,
                        const struct plait_image_block *b,
                        struct plait_image_kept *kept)
{
    size_t N = m->image->N, groups = plait_image_groups(&m->config->model, N);

    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++)
        if (b->unit[i].conv.O)
            place_unit(a, N, groups, &b->unit[i], &kept->unit[i]);
    if (b->kind == PLAIT_IMAGE_DENSE || b->pooled)
        kept->out = take(a, N * b->out);
    else if (b->nunits)
        kept->out = kept->unit[b->nunits - 1].post;
}

static void place_slot(struct arena *a, const struct plait_model *m, int chunk,
                       struct plait_image_slot *slot)
{
    const struct plait_model_state *s = m->state;
    const struct plait_image_block *b = m->image->block + s->chunk_first[chunk];
    int n = s->chunk_first[chunk + 1] - s->chunk_first[chunk];
    const float *x;

    slot->labels = take(a, m->image->N);
    slot->dhead = take(a, m->image->N * b[n - 1].in);
    slot->input = take(a, m->image->N * b[0].in);
    x = slot->input;
    for (int i = 0; i < n; i++) {
        slot->kept[i].x = x;
        place_block(a, m, &b[i], &slot->kept[i]);
        x = slot->kept[i].out;
    }
}

/* Channels of the widest norm, and of the head's widest input. */
static void find_widest(const struct plait_model *m, size_t *norm, size_t *head)
{
    *norm = *head = 0;
    for (int i = 0; i < m->state->nblocks; i++) {
        const struct plait_image_block *b = &m->image->block[i];

        for (int k = 0; k < PLAIT_IMAGE_UNITS; k++)
            if (b->unit[k].conv.O > *norm)
                *norm = b->unit[k].conv.O;
        if (b->kind == PLAIT_IMAGE_HEAD)
            *head = b->matrix.C;
    }
}

static void place_all(struct arena *a, struct plait_model *m)
{
    struct plait_image_state *s = m->image;
    const struct plait_model_config *c = &m->config->model;
    size_t dp = (size_t)m->mesh->layout.size[PLAIT_DP], norm, head;

    find_widest(m, &norm, &head);
    s->grad = take(a, s->N * s->largest);
    s->pre = take(a, s->N * s->largest);
    s->spare = take(a, s->N * s->largest);
    s->sums = take(a, plait_image_groups(c, s->N) * 2 * norm);
    if (c->norm == PLAIT_NORM_SYNC)
        s->all = take(a, dp * 2 * norm);
    s->pooled = take(a, s->N * head);
    s->dpooled = take(a, s->N * head);
    s->logits = take(a, s->N * (size_t)c->classes);
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
    struct arena a = {0};

    plait_image_release(model);
    model->image->N = (size_t)micro_batch;
    if (make_slots(model, slots) < 0)
        goto error;
    place_all(&a, model);
    model->state->arena = plait_mesh_alloc(model->mesh, a.at);
    if (!model->state->arena)
        goto error;
    a.base = model->state->arena;
    a.at = 0;
    place_all(&a, model);
    return 0;
error:
    plait_image_release(model);
    errno = ENOMEM;
    return plait_errorf(err,
                        "out of memory: the activations of %d micro-batches "
                        "of %d images need %zu MiB",
                        slots, micro_batch, a.at >> 20);
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
