/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/internal.h"
#include "topology/job/fits.h"

/* All activations and work space are in one allocation that is made before the
 * first step. Everything is placed twice: first to measure the size, then to
 * set the pointers. The layout is the same on all ranks of a stage, as
 * plait_comm_alloc() requires. The head lies where a layer works: what is in
 * either is not needed once the other begins. */

#define ARENA_ALIGN 256
/* Logits are computed for this many bytes of rows at a time: large enough for
 * full-speed products, small compared to the activations. A GPU needs more: a
 * product whose inner size is only that of the residual stream must occupy all
 * of it, and each run of rows reads and writes the whole gradient of the
 * head. */
#define LOGITS_BYTES ((size_t)100 << 20)
#define GPU_LOGITS_BYTES ((size_t)1 << 30)
/* Rows of logits come in multiples of this: of every product's tile height on a
 * GPU. */
#define GPU_ROWS 128
#define CPU_ROWS 16

struct arena {
    char *base; /* NULL: only measure */
    size_t at;
    size_t size; /* of an element of T */
};

static void *take_bytes(struct arena *a, size_t bytes)
{
    size_t at = a->at;

    a->at += (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    return a->base ? a->base + at : NULL;
}

static void *take_t(struct arena *a, size_t n)
{
    return take_bytes(a, n * a->size);
}

static float *take_f(struct arena *a, size_t n)
{
    return take_bytes(a, n * sizeof(float));
}

/* Most rows: N, n of the residual stream, M of the mlp. */
struct rows {
    size_t N, n, M;
};

static void place_routed(struct arena *a, const struct plait_dims *d,
                         struct rows r, struct plait_routed *x)
{
    x->prob = take_f(a, r.N * d->experts);
    x->expert = take_bytes(a, r.N * d->top_k * sizeof(*x->expert));
    x->gate = take_f(a, r.N * d->top_k);
    x->place = take_bytes(a, r.N * d->top_k * sizeof(*x->place));
    x->load = take_f(a, r.N * d->experts); /* there are no more sequences than
                                            * rows */
    x->count = take_bytes(a, (d->experts + 1) * sizeof(*x->count));
    x->x = take_t(a, r.M * d->hidden);
    x->z = take_t(a, r.N * d->top_k * d->hidden);
}

/* q and k before their norm. */
static void place_heads(struct arena *a, const struct plait_dims *d,
                        struct rows r, struct plait_activations *x)
{
    x->q = take_t(a, r.N * d->heads * d->head_dim);
    x->k = take_t(a, r.N * d->kv_heads * d->head_dim);
    x->q_rstd = take_f(a, r.N * d->heads);
    x->k_rstd = take_f(a, r.N * d->kv_heads);
}

/* What is cheap to compute again: the outputs of the norms and of the mlp's
 * activation. */
static void place_cheap(struct arena *a, const struct plait_dims *d,
                        struct rows r, struct plait_activations *x)
{
    x->n1 = take_t(a, r.n * d->hidden);
    x->n2 = take_t(a, r.n * d->hidden);
    x->act = take_t(a, r.M * d->ffn);
}

/* The outputs of matrix products and of attention. */
static void place_products(struct arena *a, const struct plait_dims *d,
                           struct rows r, struct plait_activations *x)
{
    x->qkv = take_t(a, r.N * d->qkv);
    x->att = take_t(a, r.N * d->heads * d->head_dim);
    x->lse = take_f(a, r.N * d->heads);
    x->x2 = take_t(a, r.n * d->hidden);
    x->pre = take_t(a, r.M * d->up);
    if (d->experts)
        place_routed(a, d, r, &x->routed);
    if (d->qk_norm)
        place_heads(a, d, r, x);
    x->mean1 = take_f(a, r.n);
    x->rstd1 = take_f(a, r.n);
    x->mean2 = take_f(a, r.n);
    x->rstd2 = take_f(a, r.n);
    x->amax = take_bytes(a, 4 * sizeof(*x->amax));
}

static void place_stash(struct arena *a, const struct plait_dims *d,
                        struct rows r, struct plait_stash *s)
{
    s->ddown = take_t(a, r.n * d->hidden);
    s->dpre = d->experts ? NULL : take_t(a, r.N * d->up);
    s->dout = take_t(a, r.n * d->hidden);
    s->dqkv = take_t(a, r.N * d->qkv);
}

/* Context parallel only. */
static void place_ring(struct arena *a, const struct plait_dims *d,
                       struct rows r, struct plait_scratch *x)
{
    size_t kv = r.N * 2 * d->kv_heads * d->head_dim;

    for (int i = 0; i < 2; i++)
        x->kv[i] = take_t(a, kv);
    for (int i = 0; i < 3; i++)
        x->dkv[i] = take_t(a, kv);
    x->att2 = take_t(a, r.N / 2 * d->heads * d->head_dim);
    x->lse2 = take_f(a, r.N / 2 * d->heads);
}

static void place_experts(struct arena *a, const struct plait_dims *d,
                          struct rows r, struct plait_scratch *x)
{
    x->route = take_t(a, r.N * d->experts);
    x->dgate = take_f(a, r.N * d->top_k);
    if (d->capacity)
        x->kept = take_bytes(a, r.N * d->top_k * sizeof(*x->kept));
    x->grouped = take_t(a, r.M * d->hidden);
    if (d->ep > 1)
        x->sorted = take_t(a, r.N * d->top_k * d->hidden);
}

/* Capacity and context parallel together. */
static void place_runs(struct arena *a, const struct plait_model *m,
                       struct plait_scratch *x)
{
    size_t n = 2 * m->state->batch * m->state->dims.experts;

    x->runs = take_f(a, n);
    x->all_runs = take_f(a, n * m->mesh->layout.size[PLAIT_CP]);
    x->before = take_f(a, n);
}

/* Codes are not kept if weight gradients are deferred: the two products that
 * use a gradient then come at different times. */
static bool keeps_codes(const struct plait_model *m)
{
    return m->config->train.precision == PLAIT_FP8 &&
           m->mesh->ops->fp8_gradient &&
           m->config->parallel.schedule != PLAIT_SCHEDULE_ZB_H1;
}

/* Room for the widest gradient; those of experts have no codes. */
static size_t codes_bytes(const struct plait_dims *d, struct rows r)
{
    int most = d->hidden > d->qkv ? d->hidden : d->qkv;

    if (!d->experts && d->up > most)
        most = d->up;
    return plait_fp8_bytes(r.N, most);
}

/* What passes from one block to the next, or is recomputed for a layer whose
 * output the next block reads. */
static void place_passed(struct arena *a, struct plait_model *m, struct rows r)
{
    struct plait_model_state *s = m->state;
    const struct plait_dims *d = &s->dims;
    struct plait_scratch *x = &s->scratch;
    enum plait_recompute recompute = m->config->parallel.recompute;
    bool sequence = r.n != r.N;
    size_t heads = m->config->model.kv_heads;

    x->full = sequence ? take_t(a, r.N * d->hidden) : NULL;
    x->part = take_t(a, r.N * d->hidden);
    x->local = sequence ? take_t(a, r.n * d->hidden) : x->part;
    x->dx = take_t(a, r.n * d->hidden);
    x->amax = take_bytes(a, 2 * sizeof(*x->amax));
    if (d->experts)
        x->balance = take_f(a, 1);
    if (recompute != PLAIT_RECOMPUTE_NONE)
        place_cheap(a, d, r, &x->shared);
    if (recompute == PLAIT_RECOMPUTE_FULL)
        place_products(a, d, r, &x->shared);
    if (d->kv_copies > 1)
        x->replicas = take_f(a, heads * d->head_dim * d->hidden);
}

/* What only a layer uses while it is computed. */
static void place_work(struct arena *a, struct plait_model *m, struct rows r)
{
    const struct plait_dims *d = &m->state->dims;
    struct plait_scratch *x = &m->state->scratch;

    if (d->gated)
        x->dact = take_t(a, r.M * d->ffn);
    x->datt = take_t(a, r.N * d->heads * d->head_dim);
    x->now.dpre = take_t(a, r.M * d->up);
    x->now.dqkv = take_t(a, r.N * d->qkv);
    if (keeps_codes(m))
        x->codes = take_bytes(a, codes_bytes(d, r));
    if (d->qk_norm)
        x->normed = take_t(a, r.N * d->heads * d->head_dim);
    if (m->mesh->layout.size[PLAIT_CP] > 1)
        place_ring(a, d, r, x);
    if (d->experts)
        place_experts(a, d, r, x);
    if (d->capacity && m->mesh->layout.size[PLAIT_CP] > 1)
        place_runs(a, m, x);
}

static void place_head(struct arena *a, struct plait_model_state *s,
                       struct rows r)
{
    const struct plait_dims *d = &s->dims;
    struct plait_scratch *x = &s->scratch;

    x->hx = take_t(a, r.n * d->hidden);
    x->hn = take_t(a, r.n * d->hidden);
    x->hmean = take_f(a, r.n);
    x->hrstd = take_f(a, r.n);
    x->logits = take_t(a, s->logit_rows * d->vocab);
    x->max = take_f(a, s->logit_rows);
    x->allmax = take_f(a, s->logit_rows);
    x->sum = take_f(a, 2 * s->logit_rows);
}

static void place_scratch(struct arena *a, struct plait_model *m, struct rows r,
                          bool head)
{
    size_t begin, end;

    place_passed(a, m, r);
    begin = a->at;
    place_work(a, m, r);
    end = a->at;
    if (!head)
        return;
    a->at = begin;
    place_head(a, m->state, r);
    if (a->at < end)
        a->at = end;
}

/* A layer's activations that are kept until its backward; contiguous. */
static void place_layer(struct arena *a, const struct plait_model *m,
                        struct rows r, struct plait_activations *x)
{
    const struct plait_dims *d = &m->state->dims;
    enum plait_recompute recompute = m->config->parallel.recompute;

    *x = m->state->scratch.shared;
    x->x1 = take_t(a, r.n * d->hidden);
    if (recompute == PLAIT_RECOMPUTE_NONE)
        place_cheap(a, d, r, x);
    if (recompute != PLAIT_RECOMPUTE_FULL)
        place_products(a, d, r, x);
}

static int layers_of(const struct plait_model *m, int chunk)
{
    const struct plait_model_state *s = m->state;
    int n = 0;

    for (int i = s->chunk_first[chunk]; i < s->chunk_first[chunk + 1]; i++)
        n += s->blocks[i].kind == PLAIT_BLOCK_LAYER;
    return n;
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

static void place_offload(struct arena *a, struct plait_model *m, struct rows r)
{
    struct plait_offload_state *o = &m->state->offload;

    for (int i = 0; i < 2; i++) {
        size_t at = a->at;

        o->base[i] = take_bytes(a, 0);
        place_layer(a, m, r, &o->at[i]);
        o->block = a->at - at;
    }
}

static void place_slot(struct arena *a, struct plait_model *m, int nlayers,
                       bool head, struct rows r, struct plait_slot *slot)
{
    const struct plait_dims *d = &m->state->dims;

    slot->tokens = take_bytes(a, r.N * sizeof(*slot->tokens));
    slot->targets = take_bytes(a, r.N * sizeof(*slot->targets));
    if (m->config->data.mask_documents)
        slot->starts = take_bytes(a, r.N * sizeof(*slot->starts));
    slot->dhead = head ? take_t(a, r.n * d->hidden) : NULL;
    if (nlayers == 0) /* in and out pass through here all the same */
        slot->layer[0].x1 = take_t(a, r.n * d->hidden);
    for (int i = 0; i < nlayers; i++) {
        if (!is_offloaded(m))
            place_layer(a, m, r, &slot->layer[i]);
        if (slot->stash)
            place_stash(a, d, r, &slot->stash[i]);
    }
}

static bool has_head(const struct plait_model *m, int chunk)
{
    const struct plait_model_state *s = m->state;

    return s->blocks[s->chunk_first[chunk + 1] - 1].kind == PLAIT_BLOCK_HEAD;
}

/* Slot i is used by one chunk at a time: all chunks begin at the same
 * address. */
static void place_chunks(struct arena *a, struct plait_model *m, struct rows r,
                         int i)
{
    struct plait_model_state *s = m->state;
    size_t start = a->at, end = start;

    for (int c = 0; c < m->chunks; c++) {
        a->at = start;
        place_slot(a, m, layers_of(m, c), has_head(m, c), r,
                   &s->slots[c * s->nslots + i]);
        if (a->at > end)
            end = a->at;
    }
    a->at = end;
}

static void place_all(struct arena *a, struct plait_model *m, struct rows r)
{
    struct plait_model_state *s = m->state;

    place_scratch(a, m, r, has_head(m, m->chunks - 1));
    if (is_offloaded(m))
        place_offload(a, m, r);
    for (int i = 0; i < s->nslots; i++)
        place_chunks(a, m, r, i);
}

static int pieces_of(const struct plait_model *m)
{
    return m->mesh->layout.size[PLAIT_CP] > 1 ? 2 : 1;
}

static int make_slots(struct plait_model *m, int nslots)
{
    struct plait_model_state *s = m->state;
    bool split = m->config->parallel.schedule == PLAIT_SCHEDULE_ZB_H1;

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
        if (pieces_of(m) > 1)
            slot->staged = calloc(s->rows, sizeof(*slot->staged));
        if (!slot->layer || (split && !slot->stash) ||
            (pieces_of(m) > 1 && !slot->staged))
            return -1;
    }
    return 0;
}

/* The most rows that can arrive here: all tokens of all ep ranks may choose as
 * many experts of this rank as they choose at all, but each expert takes no
 * more than its capacity. With ep 1 dropped choices take rows, too. */
static size_t rows_of_mlp(const struct plait_model_state *s, size_t N)
{
    const struct plait_dims *d = &s->dims;
    size_t limit = s->batch * d->capacity, most;
    int here = d->experts / d->ep;

    if (!d->experts)
        return N;
    most = N * d->ep * (d->top_k < here ? d->top_k : here);
    if (d->capacity && d->ep > 1 && d->ep * here * limit < most)
        return d->ep * here * limit;
    return most;
}

static struct rows rows_of(const struct plait_model *m, size_t N)
{
    size_t tp = m->state->dims.tp;
    struct rows r = {N, N, N};

    if (m->config->parallel.sequence && tp > 1) {
        r.n = (N + tp - 1) / tp;
        r.N = r.n * tp;
    }
    r.M = rows_of_mlp(m->state, r.N);
    return r;
}

/* What experts.c needs on the host: the numbers of rows of each layer in flight
 * (of one layer, if layers are recomputed in full), and the requests of one
 * exchange. */
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
    s->expert_rows = calloc(at * numbers + 1, sizeof(*s->expert_rows));
    if (!s->requests || !s->stay || !s->expert_rows)
        return -1;
    at = 0;
    for (int i = 0; i < m->chunks * s->nslots; i++)
        for (int k = 0; k < layers_of(m, i / s->nslots); k++) {
            struct plait_routed *r = &s->slots[i].layer[k].routed;

            r->rows = s->expert_rows + (one ? 0 : at++) * numbers;
            r->here = r->rows + d->ep * d->experts;
        }
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

static size_t choose_logit_rows(const struct plait_model *m, size_t N)
{
    const struct plait_dims *d = &m->state->dims;
    bool gpu = m->mesh->ops->gpu;
    size_t row = d->vocab * plait_dtype_size(m->type);
    size_t rows = (gpu ? GPU_LOGITS_BYTES : LOGITS_BYTES) / row, runs;
    size_t least = 4 + 4 * (size_t)d->tp; /* plait_head_logits() */
    size_t of = gpu ? GPU_ROWS : CPU_ROWS;

    if (rows > of) {
        rows = rows / of * of;
        runs = (N + rows - 1) / rows;
        rows = ((N - 1) / runs / of + 1) * of;
    }
    if (rows > N)
        rows = N;
    return rows < least ? least : rows;
}

int plait_model_reserve_rows(struct plait_model *model, int slots, int batch,
                             size_t N, struct plait_error *err)
{
    struct plait_model_state *s = model->state;
    struct arena a = {.size = plait_dtype_size(model->type)};
    struct rows r;

    s->batch = batch;
    r = rows_of(model, N);
    plait_model_release_arena(model);
    s->rows = N;
    s->logit_rows = choose_logit_rows(model, N);
    if (make_slots(model, slots) < 0)
        goto error;
    place_all(&a, model, r);
    s->arena = plait_mesh_alloc(model->mesh, a.at);
    if (!s->arena)
        goto error;
    a.base = s->arena;
    a.at = 0;
    place_all(&a, model, r);
    if (make_exchange(model) < 0 || make_offload(model) < 0)
        goto error;
    return 0;
error:
    plait_model_release_arena(model);
    errno = ENOMEM;
    return plait_errorf(err,
                        "out of memory: the activations of %d "
                        "micro-batch%s of %zu tokens need %zu MiB; with a "
                        "smaller train.micro_batch they need less",
                        slots, slots == 1 ? "" : "es", N, a.at >> 20);
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
    struct rows r = rows_of(model, N);

    if (batch->batch < 1 || (size_t)batch->batch > model->state->batch ||
        batch->seq_len < 1 || N > model->state->rows ||
        batch->seq_len > model->config->model.seq_len ||
        (train && (batch->seq_len % parts || r.N != N))) {
        errno = EINVAL;
        return -1;
    }
    shape->batch = batch->batch;
    shape->seq_len = batch->seq_len;
    shape->pieces = pieces;
    shape->piece_len = len;
    shape->N = N;
    shape->n = r.n;
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

    return rows_of(model, micro_batch * T).n * model->config->model.hidden;
}
