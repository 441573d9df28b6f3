/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/model/hooks.h"
#include "runtime/model/image.h"

/* Forward and backward of an image model's chunk: its blocks one after the
 * other, each between the hooks of its region. */

static int begin_work(struct plait_model *m, int chunk, int slot,
                      struct plait_image_work *w)
{
    struct plait_model_state *s = m->state;

    if (plait_model_check_work(m, chunk, slot) < 0)
        return -1;
    *w = (struct plait_image_work){
        .model = m,
        .ops = m->mesh->ops,
        .q = m->mesh->q,
        .s = m->image,
        .slot = &m->image->slots[chunk * s->nslots + slot],
        .train = true,
    };
    return 0;
}

static bool is_head(const struct plait_model *m, int block)
{
    return m->image->block[block].kind == PLAIT_IMAGE_HEAD;
}

/* The chunk's blocks are [first, end). */
static int first_block(const struct plait_model *m, int chunk)
{
    return m->state->chunk_first[chunk];
}

static int end_block(const struct plait_model *m, int chunk)
{
    return m->state->chunk_first[chunk + 1];
}

static const struct plait_image_kept *kept_of(const struct plait_image_work *w,
                                              int chunk, int block)
{
    return &w->slot->kept[block - first_block(w->model, chunk)];
}

static int set_batch(const struct plait_image_work *w,
                     const struct plait_batch *batch)
{
    struct plait_image_slot *s = w->slot;

    if (batch->batch < 1 || (size_t)batch->batch > w->s->N) {
        errno = EINVAL;
        return -1;
    }
    s->N = (size_t)batch->batch;
    s->loss_scale = batch->loss_scale;
    s->weights = batch->weights;
    s->index = batch->index;
    s->total = batch->total;
    return 0;
}

static int upload(const struct plait_image_work *w, int chunk,
                  const struct plait_batch *batch, bool images, bool labels)
{
    const struct plait_image_block *b =
        &w->s->block[first_block(w->model, chunk)];
    struct plait_image_slot *s = w->slot;

    if (images && batch->images && b->first &&
        w->ops->to_device(w->q, s->input, batch->images,
                          s->N * b->in * sizeof(*s->input)) < 0)
        return -1;
    if (!labels || !batch->targets)
        return 0;
    return w->ops->to_device(w->q, s->labels, batch->targets,
                             s->N * sizeof(*s->labels));
}

static int load(struct plait_model *m, int chunk, int slot,
                const struct plait_batch *batch)
{
    struct plait_image_work w;

    if (begin_work(m, chunk, slot, &w) < 0 || set_batch(&w, batch) < 0)
        return -1;
    return upload(&w, chunk, batch, true, true);
}

/* -- forward ------------------------------------------------------------------
 */

/* Acquires a block's weights, and prefetches the next block's while this one
 * computes. */
static int acquire(struct plait_image_work *w, int block, int next,
                   bool gradient)
{
    int regions[1] = {block}, ahead[1] = {next};

    w->region = block;
    if (plait_hooks_acquire(w->model, regions, 1, gradient) < 0)
        return -1;
    return next < 0 ? 0 : plait_hooks_prefetch(w->model, ahead, 1);
}

static int release(const struct plait_image_work *w)
{
    return plait_hooks_release(w->model, &w->region, 1);
}

static int head_forward(struct plait_image_work *w, int chunk, int block,
                        double *loss)
{
    const struct plait_image_kept *kept = kept_of(w, chunk, block);

    if (acquire(w, block, -1, w->train) < 0 ||
        plait_image_head(w, &w->s->block[block], kept->x, loss) < 0)
        return -1;
    return release(w);
}

static int forward(struct plait_model *m, const struct plait_forward *f)
{
    int first = first_block(m, f->chunk), end = end_block(m, f->chunk), i;
    const struct plait_image_block *b = m->image->block;
    struct plait_image_work w;

    if (begin_work(m, f->chunk, f->slot, &w) < 0 ||
        set_batch(&w, f->batch) < 0 ||
        upload(&w, f->chunk, f->batch, !f->in, is_head(m, end - 1)) < 0)
        return -1;
    w.train = f->train;
    if (f->in && w.ops->copy(w.q, w.slot->input, f->in,
                             w.slot->N * b[first].in * sizeof(float)) < 0)
        return -1;
    for (i = first; i < end && !is_head(m, i); i++)
        if (acquire(&w, i, i + 1 < end ? i + 1 : -1, false) < 0 ||
            plait_image_block_forward(&w, &b[i], kept_of(&w, f->chunk, i)) <
                0 ||
            release(&w) < 0)
            return -1;
    if (i < end)
        return head_forward(&w, f->chunk, i, f->loss);
    return w.ops->copy(w.q, f->out, kept_of(&w, f->chunk, end - 1)->out,
                       w.slot->N * b[end - 1].out * sizeof(float));
}

/* -- backward
 * ------------------------------------------------------------------ */

/* Copies the gradient of the chunk's output to the state's `grad`. */
static int start_backward(const struct plait_image_work *w, int last,
                          const void *dout)
{
    const struct plait_image_block *b = &w->s->block[last];
    size_t n = b->kind == PLAIT_IMAGE_HEAD ? b->in : b->out;

    if (b->kind == PLAIT_IMAGE_HEAD)
        dout = w->slot->dhead;
    if (b->first && b->kind == PLAIT_IMAGE_HEAD)
        return 0; /* the model is only a head */
    return w->ops->copy(w->q, w->s->grad, dout, w->slot->N * n * sizeof(float));
}

static int block_backward(struct plait_image_work *w, int chunk, int block)
{
    int first = first_block(w->model, chunk);

    if (is_head(w->model, block)) /* done in forward */
        return 0;
    if (acquire(w, block, block > first ? block - 1 : -1, true) < 0 ||
        plait_image_block_backward(w, &w->s->block[block],
                                   kept_of(w, chunk, block)) < 0)
        return -1;
    return release(w);
}

static int backward(struct plait_model *m, const struct plait_backward *b,
                    enum plait_half half)
{
    int first = first_block(m, b->chunk), end = end_block(m, b->chunk);
    struct plait_image_work w;

    if (half != PLAIT_HALF_BOTH) {
        errno = ENOTSUP; /* plait_fits_image() refuses such a schedule */
        return -1;
    }
    if (begin_work(m, b->chunk, b->slot, &w) < 0 ||
        start_backward(&w, end - 1, b->dout) < 0)
        return -1;
    for (int i = end - 1; i >= first; i--)
        if (block_backward(&w, b->chunk, i) < 0 ||
            plait_hooks_ready(m, &i, 1, b->microbatch) < 0)
            return -1;
    if (!b->din)
        return 0;
    return w.ops->copy(w.q, b->din, w.s->grad,
                       w.slot->N * w.s->block[first].in * sizeof(float));
}

/* -- the rest
 * -------------------------------------------------------------------- */

static void weights_changed(struct plait_model *m, struct plait_region *region)
{
    int i = region - m->regions;
    struct plait_matrix *w = &m->image->block[i].matrix;

    if (w->O)
        plait_matrix_refresh(m, w, region);
}

static size_t boundary(const struct plait_model *m, int micro_batch)
{
    return m->image->boundary * micro_batch;
}

/* Backward takes twice as many as forward. */
static double flops(const struct plait_model *m)
{
    return 6 * m->image->macs;
}

static void destroy(struct plait_model *m)
{
    if (!m->image)
        return;
    plait_image_release(m);
    for (int i = 0; m->image->block && i < m->state->nblocks; i++)
        if (m->image->block[i].matrix.handle)
            m->mesh->ops->weight_destroy(m->image->block[i].matrix.handle);
    free(m->image->block);
    free(m->image);
}

const struct plait_family_ops plait_image_family = {
    .layout = plait_image_layout,
    .reserve = plait_image_reserve,
    .boundary = boundary,
    .load = load,
    .forward = forward,
    .backward = backward,
    .weights_changed = weights_changed,
    .flops_per_token = flops,
    .destroy = destroy,
};
