/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/arena.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/image.h"
#include "topology/job/fits.h"
#include "topology/job/model_size.h"

/* All activations and work space of a model are one allocation, the arena, made
 * before the first step. So a model that does not fit fails there, with the
 * number of bytes, and not in the middle of a run; a step allocates nothing,
 * which a captured graph relies on; and memory that is transferred is
 * registered once. What is in the arena, how large each tensor is and how long
 * it lives is in the table of topology/job/held.h, which `plait estimate` adds
 * up; here those tensors get their addresses.
 *
 * From its beginning the arena holds
 *   - what one block passes to the next,
 *   - what is computed again before a layer's backward: one copy for all
 *     layers,
 *   - the work space of a layer, in the same place as that of the head, unless
 *     this computes a layer too (mtp.c), which then keeps its own,
 *   - with offloaded activations, the two blocks of them that are on the
 *     device,
 *   - the slots, one for each micro-batch in flight.
 * All chunks of a rank's layers begin at the same address of a slot, because
 * one chunk at a time uses it.
 *
 * place_all() runs twice. The first time `base` is NULL: it only adds up sizes,
 * and sets all pointers to NULL. plait_arena_alloc() then allocates, and the
 * second run sets the same pointers to addresses. A tensor that does not exist
 * in this configuration keeps NULL.
 *
 * The order and the sizes follow from the configuration, the layout and the
 * stage, and from nothing that one rank alone knows. That must stay so: ranks
 * of a group transfer from these buffers, and plait_comm_alloc() requires the
 * same size and offset on all of them. */

/* The struct that the tensors of a group are members of. */
#define OF_INPUT struct plait_activations
#define OF_CHEAP struct plait_activations
#define OF_PRODUCTS struct plait_activations
#define OF_STASH struct plait_stash
#define OF_PASSED struct plait_scratch
#define OF_WORK struct plait_scratch
#define OF_HEAD struct plait_scratch
#define OF_BATCH struct plait_slot
#define OF_DHEAD struct plait_slot
#define OF_MTP struct plait_mtp
#define OF_IMAGE_WORK struct plait_image_state
#define OF_IMAGE_SLOT struct plait_image_slot
#define OF_IMAGE_UNIT struct plait_unit_kept
#define OF_IMAGE_OUT struct plait_image_kept

#define MEMBER(group, member, rows, columns, type, exists) \
    offsetof(OF_##group, member),
static const size_t members[] = {PLAIT_HELD_TABLE(MEMBER)};

void plait_arena_open(struct plait_arena *a, const struct plait_model *m,
                      size_t rows, int batch)
{
    const struct plait_ops *ops = m->mesh->ops;

    memset(a, 0, sizeof(*a));
    plait_rank_sizes_set(&a->z, m->config, &m->mesh->layout, (double)rows,
                         batch, ops->gpu);
    if (!ops->fp8_gradient)
        a->z.codes = false;
}

void *plait_arena_take(struct plait_arena *a, double bytes)
{
    double at = a->at;

    a->at += plait_held_align(bytes);
    return a->base ? a->base + (size_t)at : NULL;
}

void plait_arena_place(struct plait_arena *a, unsigned groups, void *x)
{
    struct plait_held list[PLAIT_HELD_TENSORS];

    plait_held_list(&a->z, list);
    for (int i = 0; i < PLAIT_HELD_TENSORS; i++)
        if (list[i].exists && groups >> list[i].group & 1) {
            void *at = plait_arena_take(a, list[i].bytes);

            memcpy((char *)x + members[i], &at, sizeof(at));
        }
}

int plait_arena_alloc(struct plait_arena *a, struct plait_model *model)
{
    if (a->at > (double)PTRDIFF_MAX)
        return -1;
    a->base = plait_mesh_alloc(model->mesh, (size_t)a->at);
    model->state->arena = a->base;
    if (!a->base)
        return -1;
    a->at = 0;
    return 0;
}

/* The same for one layer, of which those of a layer without experts differ in a
 * model that has experts. */
static void place_of_layer(struct plait_arena *a, unsigned groups, bool dense,
                           void *x)
{
    const struct plait_rank_sizes all = a->z;

    if (dense)
        plait_rank_sizes_dense(&a->z);
    plait_arena_place(a, groups, x);
    a->z = all;
}

static void place_activations(struct plait_arena *a, unsigned groups,
                              bool dense, struct plait_activations *x)
{
    place_of_layer(a, groups, dense, x);
    x->ffn = (int)(dense ? a->z.dense : a->z.ffn);
    x->dense = dense;
}

/* What is computed again, of both kinds of layers in one place. */
static void place_again(struct plait_arena *a, const struct plait_model *m,
                        struct plait_scratch *x)
{
    unsigned groups = plait_held_again(m->config->parallel.recompute);
    double begin = a->at, end;

    place_activations(a, groups, false, &x->again[0]);
    end = a->at;
    if (!a->z.dense)
        return;
    a->at = begin;
    place_activations(a, groups, true, &x->again[1]);
    a->at = fmax(a->at, end);
}

/* A layer's activations: those computed again are in scratch.again, the others
 * its own, contiguous so that they can be offloaded by one copy. */
static void place_layer(struct plait_arena *a, const struct plait_model *m,
                        bool dense, struct plait_activations *x)
{
    *x = m->state->scratch.again[dense];
    place_activations(a, plait_held_kept(m->config->parallel.recompute), dense,
                      x);
    if (!m->state->dims.norms_before) {
        x->n1 = x->x1;
        x->n2 = x->x2;
    }
}

static bool has_head(const struct plait_model *m, int chunk)
{
    const struct plait_model_state *s = m->state;

    return s->blocks[s->chunk_first[chunk + 1] - 1].kind == PLAIT_BLOCK_HEAD;
}

/* The head lies where a layer works, or behind that if it computes one. */
static void place_scratch(struct plait_arena *a, struct plait_model *m)
{
    struct plait_scratch *x = &m->state->scratch;
    double begin, end;

    plait_arena_place(a, PLAIT_HELD_SET(PASSED), x);
    if (!x->local) /* without sequence parallelism sums are in place */
        x->local = x->part;
    place_again(a, m, x);
    begin = a->at;
    plait_arena_place(a, PLAIT_HELD_SET(WORK), x);
    end = a->at;
    if (!has_head(m, m->chunks - 1))
        return;
    a->at = a->z.mtp ? end : begin;
    plait_arena_place(a, PLAIT_HELD_SET(HEAD), x);
    a->at = fmax(a->at, end);
    if (!a->z.mtp)
        return;
    plait_arena_place(a, PLAIT_HELD_SET(MTP), &x->mtp);
    place_layer(a, m, false, &x->mtp.layer);
    x->mtp.layer.fresh = true;
}

static int layers_of(const struct plait_model *m, int chunk)
{
    const struct plait_model_state *s = m->state;
    int n = 0;

    for (int i = s->chunk_first[chunk]; i < s->chunk_first[chunk + 1]; i++)
        n += s->blocks[i].kind == PLAIT_BLOCK_LAYER;
    return n;
}

/* Whether the i-th layer of a chunk is without experts in a model that has
 * them. */
static bool is_dense(const struct plait_model *m, int chunk, int i)
{
    const struct plait_block *b =
        &m->state->blocks[m->state->chunk_first[chunk]];

    return plait_model_dense(&m->config->model,
                             b[i + (b->kind == PLAIT_BLOCK_EMBEDDING)].layer);
}

static int most_layers(const struct plait_model *m)
{
    int most = 0;

    for (int c = 0; c < m->chunks; c++)
        if (layers_of(m, c) > most)
            most = layers_of(m, c);
    return most;
}

static bool is_offloaded(const struct plait_model *m)
{
    return m->config->parallel.offload & PLAIT_OFFLOAD_ACTIVATIONS &&
           most_layers(m) > 0;
}

static void place_offload(struct plait_arena *a, struct plait_model *m)
{
    struct plait_offload_state *o = &m->state->offload;

    for (int i = 0; i < 2; i++) {
        double begin = a->at, end;

        o->base[i] = plait_arena_take(a, 0);
        place_layer(a, m, false, &o->at[i][0]);
        end = a->at;
        if (a->z.dense) {
            a->at = begin;
            place_layer(a, m, true, &o->at[i][1]);
            a->at = fmax(a->at, end);
        }
        o->block = (size_t)(a->at - begin);
    }
}

static void place_slot(struct plait_arena *a, struct plait_model *m, int chunk,
                       struct plait_slot *slot)
{
    int nlayers = layers_of(m, chunk);

    plait_arena_place(a, PLAIT_HELD_SET(BATCH), slot);
    if (has_head(m, chunk))
        plait_arena_place(a, PLAIT_HELD_SET(DHEAD), slot);
    if (nlayers == 0) /* in and out pass through here all the same */
        plait_arena_place(a, PLAIT_HELD_SET(INPUT), &slot->layer[0]);
    for (int i = 0; i < nlayers; i++) {
        bool dense = is_dense(m, chunk, i);

        if (!is_offloaded(m))
            place_layer(a, m, dense, &slot->layer[i]);
        else
            slot->layer[i].dense = dense;
        if (slot->stash)
            place_of_layer(a, PLAIT_HELD_SET(STASH), dense, &slot->stash[i]);
    }
}

/* Slot i is used by one chunk at a time: all chunks begin at the same
 * address. */
static void place_chunks(struct plait_arena *a, struct plait_model *m, int i)
{
    struct plait_model_state *s = m->state;
    double start = a->at, end = start;

    for (int c = 0; c < m->chunks; c++) {
        a->at = start;
        place_slot(a, m, c, &s->slots[c * s->nslots + i]);
        if (a->at > end)
            end = a->at;
    }
    a->at = end;
}

static void place_all(struct plait_arena *a, struct plait_model *m)
{
    place_scratch(a, m);
    if (is_offloaded(m))
        place_offload(a, m);
    for (int i = 0; i < m->state->nslots; i++)
        place_chunks(a, m, i);
}

static int pieces_of(const struct plait_model *m)
{
    return m->mesh->layout.size[PLAIT_CP] > 1 ? 2 : 1;
}

static int make_slots(struct plait_model *m, int nslots,
                      const struct plait_rank_sizes *z)
{
    struct plait_model_state *s = m->state;
    bool split = m->config->parallel.schedule == PLAIT_SCHEDULE_ZB_H1;
    bool staged = z->windows || z->mtp || pieces_of(m) > 1;

    s->slots = calloc((size_t)m->chunks * nslots, sizeof(*s->slots));
    if (!s->slots)
        return -1;
    s->nslots = nslots;
    for (int i = 0; i < m->chunks * nslots; i++) {
        struct plait_slot *slot = &s->slots[i];
        int layers = layers_of(m, i / nslots);

        layers = layers ? layers : 1;
        slot->layer = calloc(layers, sizeof(*slot->layer));
        if (split)
            slot->stash = calloc(layers, sizeof(*slot->stash));
        if (staged)
            slot->staged = calloc(s->rows, sizeof(*slot->staged));
        if (z->drops)
            slot->keys_here = calloc(s->batch, sizeof(*slot->keys_here));
        if (!slot->layer || (split && !slot->stash) ||
            (staged && !slot->staged) || (z->drops && !slot->keys_here))
            return -1;
    }
    return 0;
}

static void set_rows(struct plait_model *m, struct plait_routed *r, int *rows)
{
    const struct plait_dims *d = &m->state->dims;

    r->rows = rows;
    r->here = rows + d->ep * d->experts;
}

/* What experts.c needs on the host: the numbers of rows of each layer in flight
 * (of one layer, if layers are recomputed in full) and of a module's layer, and
 * the requests of one exchange. */
static int make_exchange(struct plait_model *m)
{
    struct plait_model_state *s = m->state;
    const struct plait_dims *d = &s->dims;
    bool one = m->config->parallel.recompute == PLAIT_RECOMPUTE_FULL;
    int here = d->experts / d->ep, at = 0;
    size_t numbers = (size_t)d->ep * d->experts + here; /* per layer */

    if (!d->experts)
        return 0;
    for (int i = 0; i < m->chunks * s->nslots; i++)
        at += layers_of(m, i / s->nslots);
    s->nrequests = d->experts + here * d->ep;
    s->requests = calloc(s->nrequests, sizeof(*s->requests));
    s->stay = calloc(2 * here, sizeof(*s->stay));
    s->expert_rows = calloc((at + 1) * numbers, sizeof(*s->expert_rows));
    if (!s->requests || !s->stay || !s->expert_rows)
        return -1;
    set_rows(m, &s->scratch.mtp.layer.routed, s->expert_rows + at * numbers);
    at = 0;
    for (int i = 0; i < m->chunks * s->nslots; i++)
        for (int k = 0; k < layers_of(m, i / s->nslots); k++)
            set_rows(m, &s->slots[i].layer[k].routed,
                     s->expert_rows + (one ? 0 : at++) * numbers);
    return 0;
}

static int make_offload(struct plait_model *m)
{
    struct plait_model_state *s = m->state;
    size_t most = (size_t)most_layers(m);

    if (plait_offload_open(m, (size_t)s->nslots * most) < 0)
        return -1;
    for (int i = 0; i < m->chunks * s->nslots; i++)
        s->slots[i].offloaded =
            s->offload.host + (size_t)(i % s->nslots) * most * s->offload.block;
    return 0;
}

int plait_model_reserve_rows(struct plait_model *model, int slots, int batch,
                             size_t N, struct plait_error *err)
{
    struct plait_model_state *s = model->state;
    struct plait_arena a;

    plait_arena_open(&a, model, N, batch);
    plait_model_release_arena(model);
    s->batch = batch;
    s->rows = N;
    s->logit_rows = (size_t)a.z.logit_rows;
    if (make_slots(model, slots, &a.z) < 0)
        goto error;
    place_all(&a, model);
    if (plait_arena_alloc(&a, model) < 0)
        goto error;
    place_all(&a, model);
    if (make_exchange(model) < 0 || make_offload(model) < 0)
        goto error;
    return 0;
error:
    plait_model_release_arena(model);
    errno = ENOMEM;
    return plait_errorf(err,
                        "out of memory: the activations of %d micro-batch%s "
                        "of %zu tokens need %.0f MiB; a smaller "
                        "train.micro_batch needs less",
                        slots, slots == 1 ? "" : "es", N,
                        floor(a.at / 1048576));
}

int plait_transformer_reserve(struct plait_model *model, int slots,
                              int micro_batch, struct plait_error *err)
{
    int cp = model->mesh->layout.size[PLAIT_CP];
    size_t N = (size_t)micro_batch * (model->config->model.seq_len / cp);

    if (plait_fits_micro_batch(model->config, &model->mesh->layout, micro_batch,
                               err) < 0)
        return -1;
    return plait_model_reserve_rows(model, slots, micro_batch, N, err);
}

void plait_model_release_arena(struct plait_model *model)
{
    struct plait_model_state *s = model->state;

    for (int i = 0; s->slots && i < model->chunks * s->nslots; i++) {
        free(s->slots[i].layer);
        free(s->slots[i].stash);
        free(s->slots[i].staged);
        free(s->slots[i].keys_here);
    }
    free(s->slots);
    free(s->expert_rows);
    free(s->requests);
    free(s->stay);
    s->expert_rows = NULL;
    s->requests = NULL;
    s->stay = NULL;
    s->slots = NULL;
    s->nslots = 0;
    plait_offload_close(model);
    plait_mesh_free(model->mesh, s->arena);
    s->arena = NULL;
    memset(&s->scratch, 0, sizeof(s->scratch));
    s->balance = -1;
}

int plait_model_shape(const struct plait_model *model,
                      const struct plait_batch *batch, bool train,
                      struct plait_batch_shape *shape)
{
    int pieces = pieces_of(model);
    int parts = model->mesh->layout.size[PLAIT_CP] * pieces;
    /* Sequences that are not trained on may have any length: the rest is
     * padding. */
    int len = (batch->seq_len + parts - 1) / parts;
    size_t N = (size_t)batch->batch * len * pieces;
    size_t n = (size_t)plait_rank_stream(model->config, &model->mesh->layout,
                                         (double)N);

    if (batch->batch < 1 || (size_t)batch->batch > model->state->batch ||
        batch->seq_len < 1 || N > model->state->rows ||
        batch->seq_len > model->config->model.seq_len ||
        (train && batch->seq_len % parts) ||
        (train && model->config->parallel.sequence &&
         n * model->state->dims.tp != N)) {
        errno = EINVAL;
        return -1;
    }
    shape->batch = batch->batch;
    shape->seq_len = batch->seq_len;
    shape->pieces = pieces;
    shape->piece_len = len;
    shape->N = N;
    shape->n = n;
    return 0;
}

int64_t plait_model_piece_pos(const struct plait_model *model,
                              const struct plait_batch_shape *shape, int piece)
{
    int cp = model->mesh->layout.size[PLAIT_CP];
    int r = model->mesh->coord.at[PLAIT_CP];

    if (cp == 1)
        return 0;
    return (int64_t)shape->piece_len * (piece ? 2 * cp - 1 - r : r);
}

size_t plait_transformer_boundary(const struct plait_model *model,
                                  int micro_batch)
{
    size_t T =
        model->config->model.seq_len / model->mesh->layout.size[PLAIT_CP];
    struct plait_arena a;

    plait_arena_open(&a, model, micro_batch * T, micro_batch);
    return (size_t)a.z.message;
}
