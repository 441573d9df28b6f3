/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/internal.h"
#include "topology/job/held.h"

/* The KV cache: keys and values of growing texts. */

static int count_layers(const struct plait_model *m)
{
    int n = 0;

    for (int i = 0; i < m->state->nblocks; i++)
        n += m->state->blocks[i].kind == PLAIT_BLOCK_LAYER;
    return n;
}

/* Bytes for one layer. */
static size_t kv_bytes(const struct plait_model *m, int texts, int length)
{
    const struct plait_dims *d = &m->state->dims;

    return (size_t)plait_held_align((double)texts * length * 2 * d->kv_heads *
                                    d->head_dim * plait_dtype_size(m->type));
}

static size_t load_bytes(const struct plait_model *m, int texts)
{
    const struct plait_dims *d = &m->state->dims;

    return d->capacity ? (size_t)plait_held_align((double)texts * d->experts *
                                                  sizeof(float))
                       : 0;
}

size_t plait_model_cache_bytes(const struct plait_model *model, int texts,
                               int length)
{
    return count_layers(model) *
           (kv_bytes(model, texts, length) + load_bytes(model, texts));
}

void plait_model_release_cache(struct plait_model *model)
{
    struct plait_cache *c = &model->state->cache;

    /* a model that never gets weights has no device either */
    if (c->memory)
        model->mesh->ops->free(model->mesh->dev, c->memory);
    free(c->layer);
    memset(c, 0, sizeof(*c));
}

static int make_cache(struct plait_model *m, int texts, int length)
{
    struct plait_cache *c = &m->state->cache;
    size_t kv = kv_bytes(m, texts, length), load = load_bytes(m, texts);
    int layers = count_layers(m);

    c->texts = texts;
    c->length = length;
    if (layers == 0)
        return 0;
    c->layer = calloc(layers, sizeof(*c->layer));
    c->memory = m->mesh->ops->alloc(m->mesh->dev, layers * (kv + load));
    if (!c->layer || !c->memory)
        return -1;
    for (int i = 0; i < layers; i++) {
        char *at = (char *)c->memory + i * (kv + load);

        c->layer[i].kv = at;
        c->layer[i].load = load ? (float *)(void *)(at + kv) : NULL;
        m->state->slots[0].layer[i].cache = &c->layer[i];
    }
    return 0;
}

int plait_model_reserve_texts(struct plait_model *model, int texts, int length,
                              int rows, struct plait_error *err)
{
    plait_model_release_cache(model);
    if (plait_model_reserve_rows(model, 1, 1, rows, err) < 0)
        return -1;
    if (make_cache(model, texts, length) == 0)
        return 0;
    plait_model_release_cache(model);
    errno = ENOMEM;
    return plait_errorf(err,
                        "out of memory: the keys and values of %d text%s of "
                        "%d tokens need %zu MiB",
                        texts, texts == 1 ? "" : "s", length,
                        plait_model_cache_bytes(model, texts, length) >> 20);
}

void plait_next_span(const struct plait_work *w, int i,
                     struct plait_row_span *span)
{
    const struct plait_batch_shape *s = w->shape;

    span->first = i > 0 ? span->first + span->rows : 0;
    if (w->added) {
        span->rows = span->T = w->added->add[i].count;
        span->pos = w->added->add[i].first;
    } else {
        span->rows = (size_t)s->batch * s->piece_len;
        span->T = s->piece_len;
        span->pos = plait_model_piece_pos(w->model, s, i);
    }
}
