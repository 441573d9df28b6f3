/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "runtime/model/experts.h"
#include "runtime/model/hooks.h"
#include "runtime/model/internal.h"
#include "runtime/model/operand.h"

/* Forward and backward of a chunk: its blocks one after the other, each between
 * the hooks of its regions. */

int plait_model_check_work(const struct plait_model *m, int chunk, int slot)
{
    const struct plait_model_state *s = m->state;

    if (chunk < 0 || chunk >= m->chunks || slot < 0 || slot >= s->nslots) {
        errno = EINVAL;
        return -1;
    }
    if (s->handles_failed) {
        errno = ENOMEM;
        return -1;
    }
    return 0;
}

static int begin_work(struct plait_model *m, int chunk, int slot,
                      struct plait_work *w)
{
    struct plait_model_state *s = m->state;

    if (plait_model_check_work(m, chunk, slot) < 0)
        return -1;
    memset(w, 0, sizeof(*w));
    w->model = m;
    w->ops = m->mesh->ops;
    w->q = m->mesh->q;
    w->type = m->type;
    w->fp8 = m->config->train.precision == PLAIT_FP8;
    w->d = &s->dims;
    w->tp.group = m->mesh->group[PLAIT_GROUP_TP];
    w->tp.q = w->q;
    w->tp.type = m->type;
    w->tp.sequence = m->config->parallel.sequence && s->dims.tp > 1;
    w->scratch = &s->scratch;
    w->slot = &s->slots[chunk * s->nslots + slot];
    w->shape = &w->slot->shape;
    return 0;
}

/* Sets what depends on the shape of the residual stream: its elements over the
 * tp group, and its chunks. */
static void set_stream(struct plait_work *w)
{
    w->tp.chunks = plait_choose_chunks(w);
    w->stream = w->shape->n * w->d->hidden * (w->tp.sequence ? w->d->tp : 1);
}

static size_t stream_bytes(const struct plait_work *w)
{
    return w->shape->n * w->d->hidden * plait_dtype_size(w->type);
}

/* -- hooks --------------------------------------------------------------- */

/* The regions that a block computes with, in order: its own; before it the
 * embedding's if the head multiplies by that; after it its experts'. */
static int regions_of(const struct plait_block *b, int regions[2])
{
    int n = 0;

    if (b->kind == PLAIT_BLOCK_HEAD && b->vocab.region != b->region)
        regions[n++] = b->vocab.region;
    regions[n++] = b->region;
    if (b->expert_region >= 0)
        regions[n++] = b->expert_region;
    return n;
}

static int acquire_regions(const struct plait_work *w,
                           const struct plait_block *b, bool gradient)
{
    int regions[2], n = regions_of(b, regions);

    return plait_hooks_acquire(w->model, regions, n, gradient);
}

static int prefetch_regions(const struct plait_work *w,
                            const struct plait_block *b)
{
    int regions[2], n = regions_of(b, regions);

    return plait_hooks_prefetch(w->model, regions, n);
}

static int release_regions(const struct plait_work *w,
                           const struct plait_block *b)
{
    int regions[2], n = regions_of(b, regions);

    return plait_hooks_release(w->model, regions, n);
}

static int gradients_ready(const struct plait_work *w,
                           const struct plait_block *b, int microbatch)
{
    int regions[2] = {b->expert_region, b->region};

    if (b->expert_region < 0)
        return plait_hooks_ready(w->model, &b->region, 1, microbatch);
    return plait_hooks_ready(w->model, regions, 2, microbatch);
}

/* -- what comes next ----------------------------------------------------- */

/* Head and module are computed in one. */
static bool is_end(const struct plait_block *b)
{
    return b->kind == PLAIT_BLOCK_HEAD || b->kind == PLAIT_BLOCK_MTP;
}

/* The block with which a forward or backward of a chunk begins; NULL for the
 * backward of a head alone, because that is part of its forward. */
static const struct plait_block *entry_block(const struct plait_model_state *s,
                                             int chunk, bool backward)
{
    const struct plait_block *first = &s->blocks[s->chunk_first[chunk]];
    const struct plait_block *last = &s->blocks[s->chunk_first[chunk + 1] - 1];

    if (!backward)
        return first->kind == PLAIT_BLOCK_MTP ? last : first;
    while (last >= first && is_end(last))
        last--;
    return last >= first ? last : NULL;
}

/* While block b computes: prefetches the regions of the next one. */
static int look_ahead(const struct plait_work *w, int chunk,
                      const struct plait_block *b, bool backward)
{
    const struct plait_model_state *s = w->model->state;
    const struct plait_block *next;
    int at = b - s->blocks;

    if (backward && at > s->chunk_first[chunk])
        return prefetch_regions(w, b - 1);
    if (!backward && at < s->chunk_first[chunk + 1] - 1)
        return prefetch_regions(w,
                                b[1].kind == PLAIT_BLOCK_MTP ? b + 2 : b + 1);
    if (s->next_chunk < 0)
        return 0;
    next = entry_block(s, s->next_chunk, s->next_backward);
    return next ? prefetch_regions(w, next) : 0;
}

/* -- forward ------------------------------------------------------------- */

static const struct plait_block *first_block(const struct plait_model *m,
                                             int chunk)
{
    return &m->state->blocks[m->state->chunk_first[chunk]];
}

static const struct plait_block *last_block(const struct plait_model *m,
                                            int chunk)
{
    return &m->state->blocks[m->state->chunk_first[chunk + 1] - 1];
}

/* Whether the chunk has more than an embedding or a head. */
static bool has_layers(const struct plait_model *m, int chunk)
{
    return first_block(m, chunk)->kind == PLAIT_BLOCK_LAYER ||
           last_block(m, chunk) > first_block(m, chunk) + 1 ||
           last_block(m, chunk)->kind == PLAIT_BLOCK_LAYER;
}

static int start_stream(const struct plait_work *w, int chunk,
                        const struct plait_batch *batch, const void *in,
                        bool train)
{
    const struct plait_block *first = first_block(w->model, chunk);

    if (has_layers(w->model, chunk) && plait_offload_take(w, 0, train) < 0)
        return -1;
    if (first->kind == PLAIT_BLOCK_EMBEDDING)
        return plait_upload_inputs(w, batch);
    return w->ops->copy(w->q, w->slot->layer[0].x1, in, stream_bytes(w));
}

static int block_forward(const struct plait_work *w,
                         const struct plait_block *b, int nth, bool train,
                         struct plait_stream *s)
{
    w->model->observer.layer = b->layer;
    if (plait_show_tensors(w, b, false) < 0)
        return -1;
    if (b->kind == PLAIT_BLOCK_EMBEDDING)
        return plait_embed_forward(w, b, w->slot->layer[0].x1) < 0
                   ? -1
                   : plait_show(w, "the output of the embedding",
                                w->slot->layer[0].x1,
                                w->shape->n * w->d->hidden);
    if (b->kind != PLAIT_BLOCK_LAYER)
        return 0; /* the head: computed by the caller, which knows what it
                   * wants */
    if ((nth > 0 && plait_offload_take(w, nth, train) < 0) ||
        plait_layer_forward(w, b, &w->slot->layer[nth], s) < 0)
        return -1;
    return plait_offload_put(w, nth);
}

static float *peaks_of(const struct plait_work *w, const struct plait_block *b)
{
    return w->model->peaks ? w->model->peaks + b->peaks : NULL;
}

/* All blocks but the head. */
static int body_forward(const struct plait_work *w, int chunk, bool train,
                        struct plait_stream *s)
{
    const struct plait_model_state *state = w->model->state;
    struct plait_work here = *w;
    int nth = 0;

    s->x = w->slot->layer[0].x1;
    s->delta = NULL;
    for (int i = state->chunk_first[chunk]; i < state->chunk_first[chunk + 1];
         i++) {
        const struct plait_block *b = &state->blocks[i];

        if (is_end(b))
            break;
        here.layer = b->layer;
        here.peak = train ? peaks_of(w, b) : NULL;
        if (acquire_regions(w, b, false) < 0 ||
            look_ahead(w, chunk, b, false) < 0 ||
            block_forward(&here, b, nth, train, s) < 0 ||
            release_regions(w, b) < 0)
            return -1;
        nth += b->kind == PLAIT_BLOCK_LAYER;
    }
    return 0;
}

static int head_forward(const struct plait_work *w,
                        const struct plait_block *head,
                        const struct plait_stream *s, double *loss, bool train)
{
    w->model->observer.layer = -1;
    if (plait_show_tensors(w, head, false) < 0 ||
        plait_head_forward(w, head, s->x, s->delta, loss, train) < 0)
        return -1;
    return train ? plait_show(w, "the gradient of the head's input",
                              w->slot->dhead, w->shape->n * w->d->hidden)
                 : 0;
}

static int set_shape(struct plait_work *w, const struct plait_batch *batch,
                     bool train)
{
    if (plait_model_shape(w->model, batch, train, &w->slot->shape) < 0)
        return -1;
    w->slot->loss_scale = batch->loss_scale;
    w->slot->weights = batch->weights;
    w->slot->masked = w->slot->starts && (batch->starts || !batch->tokens);
    w->slot->drops = train;
    set_stream(w);
    if (train && plait_experts_set_balance(w, 1 - batch->masked) < 0)
        return -1;
    if (plait_upload_windows(w, batch) < 0 ||
        (train && plait_upload_keys(w, batch) < 0))
        return -1;
    return w->slot->masked ? plait_upload_starts(w, batch) : 0;
}

/* Copies the output of the last layer, or of the embedding, for the next
 * stage. */
static int finish_stream(const struct plait_work *w,
                         const struct plait_stream *s, void *out)
{
    if (!s->delta)
        return w->ops->copy(w->q, out, s->x, stream_bytes(w));
    return w->ops->add(w->q,
                       &(struct plait_add){.type = w->type,
                                           .out = out,
                                           .a = s->x,
                                           .b = s->delta,
                                           .n = w->shape->n * w->d->hidden});
}

int plait_transformer_load(struct plait_model *model, int chunk, int slot,
                           const struct plait_batch *batch)
{
    struct plait_work w;

    if (begin_work(model, chunk, slot, &w) < 0 ||
        set_shape(&w, batch, true) < 0)
        return -1;
    if (first_block(model, chunk)->kind == PLAIT_BLOCK_EMBEDDING &&
        plait_upload_inputs(&w, batch) < 0)
        return -1;
    if (last_block(model, chunk)->kind != PLAIT_BLOCK_HEAD)
        return 0;
    return plait_upload_targets(&w, batch) < 0 ? -1
                                               : plait_upload_next(&w, batch);
}

int plait_transformer_forward(struct plait_model *model,
                              const struct plait_forward *f)
{
    const struct plait_block *last;
    struct plait_work w;
    struct plait_stream s;

    if (begin_work(model, f->chunk, f->slot, &w) < 0 ||
        set_shape(&w, f->batch, f->train) < 0 ||
        start_stream(&w, f->chunk, f->batch, f->in, f->train) < 0 ||
        body_forward(&w, f->chunk, f->train, &s) < 0)
        return -1;
    last = last_block(model, f->chunk);
    if (last->kind != PLAIT_BLOCK_HEAD)
        return finish_stream(&w, &s, f->out);
    if (plait_upload_targets(&w, f->batch) < 0 ||
        (f->train && plait_upload_next(&w, f->batch) < 0) ||
        acquire_regions(&w, last, f->train) < 0 ||
        look_ahead(&w, f->chunk, last, false) < 0 ||
        head_forward(&w, last, &s, f->loss, f->train) < 0)
        return -1;
    return release_regions(&w, last);
}

/* Checks that there is room, and sets the shape. If experts have a capacity, a
 * pass has only one text. */
static int set_additions(struct plait_work *w,
                         const struct plait_additions *added)
{
    const struct plait_batch batch = {.tokens = added->tokens};
    const struct plait_model_state *s = w->model->state;
    size_t N = 0;

    for (int i = 0; i < added->n; i++) {
        const struct plait_addition *add = &added->add[i];

        N += add->count;
        if (add->text < 0 || add->text >= s->cache.texts || add->first < 0 ||
            add->count < 1 || add->first + add->count > s->cache.length) {
            errno = EINVAL;
            return -1;
        }
    }
    if (N == 0 || N > s->rows || (w->d->capacity && added->n > 1)) {
        errno = EINVAL;
        return -1;
    }
    w->added = added;
    w->slot->masked = w->slot->drops = false;
    w->slot->shape = (struct plait_batch_shape){
        .batch = 1, .piece_len = N, .pieces = 1, .seq_len = N, .N = N, .n = N};
    set_stream(w);
    return plait_upload_windows(w, &batch);
}

int plait_model_extend(struct plait_model *model,
                       const struct plait_additions *added, const void *in,
                       void *out, float *logits)
{
    const struct plait_batch batch = {.tokens = added->tokens};
    const struct plait_block *last;
    struct plait_work w;
    struct plait_stream s;

    if (begin_work(model, 0, 0, &w) < 0 || set_additions(&w, added) < 0 ||
        start_stream(&w, 0, &batch, in, false) < 0 ||
        body_forward(&w, 0, false, &s) < 0)
        return -1;
    last = last_block(model, 0);
    if (last->kind != PLAIT_BLOCK_HEAD)
        return finish_stream(&w, &s, out);
    if (acquire_regions(&w, last, false) < 0 ||
        plait_head_logits(&w, last, s.x, s.delta, logits) < 0)
        return -1;
    return release_regions(&w, last);
}

/* -- backward ------------------------------------------------------------ */

static const struct plait_stash *stash_of(const struct plait_work *w, int nth,
                                          enum plait_half half)
{
    if (half == PLAIT_HALF_BOTH)
        return &w->scratch->now;
    return &w->slot->stash[nth];
}

static int block_backward(const struct plait_work *w, int chunk,
                          const struct plait_block *b, int nth, void *dx,
                          enum plait_half half)
{
    const struct plait_activations *a = &w->slot->layer[nth];
    int rc = 0;

    if (is_end(b))
        return 0; /* done in forward */
    w->model->observer.layer = b->layer;
    if (acquire_regions(w, b, true) < 0 || look_ahead(w, chunk, b, true) < 0)
        return -1;
    if (b->kind == PLAIT_BLOCK_LAYER && plait_offload_get(w, nth) < 0)
        return -1;
    if (b->kind == PLAIT_BLOCK_LAYER && half == PLAIT_HALF_WEIGHT)
        rc = plait_layer_backward_weight(w, b, a, stash_of(w, nth, half));
    else if (b->kind == PLAIT_BLOCK_LAYER)
        rc = plait_layer_backward(w, b, a, stash_of(w, nth, half), dx, half);
    else if (half & PLAIT_HALF_INPUT)
        rc = plait_embed_backward(w, b, dx);
    return rc < 0 ? -1 : release_regions(w, b);
}

static int run_backward(const struct plait_work *w, int chunk, int microbatch,
                        void *dx, enum plait_half half)
{
    const struct plait_model_state *s = w->model->state;
    struct plait_work here = *w;
    int nth = 0;

    for (int i = s->chunk_first[chunk]; i < s->chunk_first[chunk + 1]; i++)
        nth += s->blocks[i].kind == PLAIT_BLOCK_LAYER;
    for (int i = s->chunk_first[chunk + 1] - 1; i >= s->chunk_first[chunk];
         i--) {
        const struct plait_block *b = &s->blocks[i];

        nth -= b->kind == PLAIT_BLOCK_LAYER;
        here.layer = b->layer;
        here.peak = peaks_of(w, b); /* recomputed alike */
        if (block_backward(&here, chunk, b, nth, dx, half) < 0)
            return -1;
        if (half & PLAIT_HALF_WEIGHT && (plait_show_tensors(w, b, true) < 0 ||
                                         gradients_ready(w, b, microbatch) < 0))
            return -1;
    }
    return 0;
}

static int backward_stream(struct plait_model *model,
                           const struct plait_backward *b, enum plait_half half)
{
    const void *dout = b->dout;
    void *dx = b->din;
    struct plait_work w;

    if (begin_work(model, b->chunk, b->slot, &w) < 0)
        return -1;
    set_stream(&w);
    if (last_block(model, b->chunk)->kind == PLAIT_BLOCK_HEAD)
        dout = w.slot->dhead;
    if (first_block(model, b->chunk)->kind == PLAIT_BLOCK_EMBEDDING)
        dx = w.scratch->dx;
    if (w.ops->copy(w.q, dx, dout, stream_bytes(&w)) < 0 ||
        plait_amax_find(&w, plait_gradient_amax(&w), dx,
                        w.shape->n * w.d->hidden) < 0)
        return -1;
    return run_backward(&w, b->chunk, b->microbatch, dx, half);
}

int plait_transformer_backward(struct plait_model *model,
                               const struct plait_backward *b,
                               enum plait_half half)
{
    struct plait_work w;

    if (half != PLAIT_HALF_WEIGHT)
        return backward_stream(model, b, half);
    if (begin_work(model, b->chunk, b->slot, &w) < 0)
        return -1;
    set_stream(&w);
    return run_backward(&w, b->chunk, b->microbatch, NULL, half);
}
