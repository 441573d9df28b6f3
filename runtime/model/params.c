/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/internal.h"
#include "topology/job/model_size.h"

/* The tensor table: one walk over this rank's blocks gives every tensor its
 * name, shape and place. */

#define REGION_ALIGN 64 /* elements: 128 bytes or more in every type */
#define INIT_STD 0.02

struct builder {
    struct plait_model *model;
    struct plait_dims *d;
    int chunk;
    int in_chunk; /* blocks of this chunk so far */
    int layer;
    int tensors_cap;
    int product; /* number of the last matrix's product, or -1 */
    size_t at;   /* elements of the open region so far */
    bool expert; /* the open region holds experts */
    bool failed;
};

static size_t align_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* A tensor that every tp rank has in full; cols 0: a vector. */
static struct plait_tensor whole_tensor(const struct builder *b, size_t rows,
                                        size_t cols)
{
    struct plait_tensor t = {
        .ndim = cols ? 2 : 1,
        .shape = {rows, cols ? cols : 1},
        .local_shape = {rows, cols ? cols : 1},
        .tp_axis = -1,
        .tp_replicas = b->d->tp,
        .product = -1,
    };

    return t;
}

/* A tensor cut into tp equal parts along `axis`. */
static struct plait_tensor split_tensor(const struct builder *b, int axis,
                                        size_t rows, size_t cols)
{
    struct plait_tensor t = whole_tensor(b, rows, cols);

    t.tp_axis = axis;
    t.tp_replicas = 1;
    t.local_shape[axis] = t.shape[axis] / b->d->tp;
    t.local_first = t.local_shape[axis] * b->d->tp_rank;
    return t;
}

/* Key or value heads: split along the rows, or shared if there are fewer heads
 * than ranks. */
static struct plait_tensor split_kv(const struct builder *b, size_t cols)
{
    const struct plait_dims *d = b->d;
    const struct plait_model_config *c = &b->model->config->model;
    struct plait_tensor t =
        split_tensor(b, 0, (size_t)c->kv_heads * d->head_dim, cols);

    t.local_shape[0] = (size_t)d->kv_heads * d->head_dim;
    t.local_first = (size_t)d->kv_first * d->head_dim;
    t.tp_replicas = d->kv_copies;
    return t;
}

static struct plait_tensor split_vocab(const struct builder *b)
{
    const struct plait_dims *d = b->d;
    const struct plait_model_config *c = &b->model->config->model;
    struct plait_tensor t = split_tensor(b, 0, c->vocab, c->hidden);

    t.local_shape[0] = d->vocab;
    t.local_first = d->vocab_first;
    return t;
}

static int grow_table(struct builder *b)
{
    struct plait_model *m = b->model;
    struct plait_tensor *more;
    int cap;

    if (m->ntensors < b->tensors_cap)
        return 0;
    cap = b->tensors_cap ? 2 * b->tensors_cap : 64;
    more = realloc(m->tensors, cap * sizeof(*more));
    if (!more) {
        b->failed = true;
        return -1;
    }
    m->tensors = more;
    b->tensors_cap = cap;
    return 0;
}

static void set_name(struct builder *b, struct plait_tensor *t,
                     const char *name)
{
    if (b->layer < 0)
        snprintf(t->name, sizeof(t->name), "%s", name);
    else
        snprintf(t->name, sizeof(t->name), "layers.%d.%s", b->layer, name);
}

/* Places `t` at the end of the open region. joined: without a gap, so that it
 * forms one matrix or vector with the tensor before. Returns its offset. */
static size_t add_tensor(struct builder *b, struct plait_tensor t, bool joined,
                         const char *name)
{
    struct plait_model *m = b->model;

    if (grow_table(b) < 0)
        return 0;
    if (!joined)
        b->at = align_up(b->at, REGION_ALIGN);
    set_name(b, &t, name);
    t.decay = t.ndim == 2;
    t.expert = b->expert;
    t.layer = b->layer;
    t.chunk = b->chunk;
    t.region = m->nregions;
    t.offset = b->at;
    t.count = t.local_shape[0] * t.local_shape[1];
    b->at += t.count;
    m->tensors[m->ntensors++] = t;
    return t.offset;
}

static size_t add_weight(struct builder *b, struct plait_tensor t, double std,
                         bool joined, const char *name)
{
    if (!joined)
        b->product = b->model->state->nproducts++;
    t.product = b->product;
    t.init_std = std;
    return add_tensor(b, t, joined, name);
}

/* The bias of the matrix added last. */
static size_t add_bias(struct builder *b, struct plait_tensor t, bool joined,
                       const char *name)
{
    t.product = b->product;
    return add_tensor(b, t, joined, name);
}

/* A table that rows are looked up in. */
static size_t add_table(struct builder *b, struct plait_tensor t,
                        const char *name)
{
    b->product = -1;
    t.init_std = INIT_STD;
    return add_tensor(b, t, false, name);
}

static size_t add_norm(struct builder *b, const char *name)
{
    struct plait_tensor t = whole_tensor(b, b->d->hidden, 0);

    t.init_const = 1;
    t.sequence_partial = b->model->config->parallel.sequence && b->d->tp > 1;
    return add_tensor(b, t, false, name);
}

static size_t add_norm_bias(struct builder *b, const char *name)
{
    struct plait_tensor t = whole_tensor(b, b->d->hidden, 0);

    t.sequence_partial = b->model->config->parallel.sequence && b->d->tp > 1;
    return add_tensor(b, t, false, name);
}

static struct plait_block *open_block(struct builder *b,
                                      enum plait_block_kind kind, int layer)
{
    struct plait_model_state *s = b->model->state;
    struct plait_block *blk = &s->blocks[s->nblocks++];

    b->layer = layer;
    b->at = 0;
    blk->kind = kind;
    blk->layer = layer;
    blk->region = b->model->nregions;
    blk->expert_region = -1;
    return blk;
}

static void close_block(struct builder *b)
{
    struct plait_model *m = b->model;
    struct plait_region *r = &m->regions[m->nregions++];

    r->chunk = b->chunk;
    r->expert = b->expert;
    r->block = b->in_chunk++;
    r->begin = m->count;
    r->count = align_up(b->at, REGION_ALIGN);
    m->count += r->count;
}

static struct plait_matrix make_matrix(const struct builder *b, size_t offset,
                                       size_t O, size_t C)
{
    struct plait_matrix w = {.region = b->model->nregions,
                             .offset = offset,
                             .O = O,
                             .C = C,
                             .product = b->product};

    return w;
}

/* The norm of the heads of q or k. Each tp rank only has its own heads, so that
 * its gradient is a part of a sum. */
static size_t add_head_norm(struct builder *b, const char *name)
{
    struct plait_tensor t = whole_tensor(b, b->d->head_dim, 0);

    t.init_const = 1;
    t.sequence_partial = b->d->tp > 1;
    return add_tensor(b, t, false, name);
}

static void add_qkv(struct builder *b, struct plait_block *blk, bool bias)
{
    const struct plait_dims *d = b->d;
    size_t C = d->hidden, q, at;

    q = (size_t)b->model->config->model.heads * d->head_dim;
    at = add_weight(b, split_tensor(b, 0, q, C), INIT_STD, false,
                    "attention.q.weight");
    add_weight(b, split_kv(b, C), INIT_STD, true, "attention.k.weight");
    add_weight(b, split_kv(b, C), INIT_STD, true, "attention.v.weight");
    blk->qkv = make_matrix(b, at, d->qkv, C);
    blk->qkv.bias = bias;
    if (bias) {
        blk->qkv_bias =
            add_bias(b, split_tensor(b, 0, q, 0), false, "attention.q.bias");
        add_bias(b, split_kv(b, 0), true, "attention.k.bias");
        add_bias(b, split_kv(b, 0), true, "attention.v.bias");
    }
    if (d->qk_norm) {
        blk->q_norm = add_head_norm(b, "attention.q_norm.weight");
        blk->k_norm = add_head_norm(b, "attention.k_norm.weight");
    }
}

static void add_attention(struct builder *b, struct plait_block *blk)
{
    const struct plait_model_config *c = &b->model->config->model;
    const struct plait_dims *d = b->d;
    size_t C = d->hidden, q = (size_t)c->heads * d->head_dim, at;
    double residual_std = INIT_STD / sqrt(2.0 * c->layers);

    add_qkv(b, blk, d->bias || c->attention_bias != PLAIT_BIAS_NONE);
    at = add_weight(b, split_tensor(b, 1, C, q), residual_std, false,
                    "attention.out.weight");
    blk->out = make_matrix(b, at, C, (size_t)d->heads * d->head_dim);
    blk->out.bias = d->bias || c->attention_bias == PLAIT_BIAS_ALL;
    if (blk->out.bias)
        blk->out_bias =
            add_bias(b, whole_tensor(b, C, 0), false, "attention.out.bias");
}

static void add_mlp(struct builder *b, struct plait_block *blk)
{
    const struct plait_dims *d = b->d;
    size_t C = d->hidden, F = b->model->config->model.ffn, at;
    double residual_std = INIT_STD / sqrt(2.0 * b->model->config->model.layers);

    if (d->gated) {
        at = add_weight(b, split_tensor(b, 0, F, C), INIT_STD, false,
                        "mlp.gate.weight");
        add_weight(b, split_tensor(b, 0, F, C), INIT_STD, true,
                   "mlp.up.weight");
    } else {
        at = add_weight(b, split_tensor(b, 0, F, C), INIT_STD, false,
                        "mlp.up.weight");
    }
    blk->up = make_matrix(b, at, d->up, C);
    blk->up.bias = d->bias;
    if (d->bias)
        blk->up_bias =
            add_bias(b, split_tensor(b, 0, F, 0), false, "mlp.up.bias");
    at = add_weight(b, split_tensor(b, 1, C, F), residual_std, false,
                    "mlp.down.weight");
    blk->down = make_matrix(b, at, C, d->ffn);
    blk->down.bias = d->bias;
    if (d->bias)
        blk->down_bias =
            add_bias(b, whole_tensor(b, C, 0), false, "mlp.down.bias");
}

static void add_router(struct builder *b, struct plait_block *blk)
{
    struct plait_tensor t = whole_tensor(b, b->d->experts, b->d->hidden);

    /* Each tp rank sees its part of the experts' outputs, so that its gradient
     * is a part of a sum. */
    t.sequence_partial = b->d->tp > 1;
    blk->router =
        make_matrix(b, add_weight(b, t, INIT_STD, false, "router.weight"),
                    b->d->experts, b->d->hidden);
}

static void name_expert(char *buf, size_t size, int expert, const char *name)
{
    snprintf(buf, size, "experts.%d.%s", expert, name);
}

/* Like add_mlp(), in the layer's second region. */
static void add_expert(struct builder *b, struct plait_expert *x, int expert)
{
    const struct plait_dims *d = b->d;
    size_t C = d->hidden, F = b->model->config->model.ffn, at;
    double residual_std = INIT_STD / sqrt(2.0 * b->model->config->model.layers);
    char name[64];

    name_expert(name, sizeof(name), expert,
                d->gated ? "gate.weight" : "up.weight");
    at = add_weight(b, split_tensor(b, 0, F, C), INIT_STD, false, name);
    if (d->gated) {
        name_expert(name, sizeof(name), expert, "up.weight");
        add_weight(b, split_tensor(b, 0, F, C), INIT_STD, true, name);
    }
    x->up = make_matrix(b, at, d->up, C);
    x->up.bias = d->bias;
    if (d->bias) {
        name_expert(name, sizeof(name), expert, "up.bias");
        x->up_bias = add_bias(b, split_tensor(b, 0, F, 0), false, name);
    }
    name_expert(name, sizeof(name), expert, "down.weight");
    at = add_weight(b, split_tensor(b, 1, C, F), residual_std, false, name);
    x->down = make_matrix(b, at, C, d->ffn);
    x->down.bias = d->bias;
    if (d->bias) {
        name_expert(name, sizeof(name), expert, "down.bias");
        x->down_bias = add_bias(b, whole_tensor(b, C, 0), false, name);
    }
}

static void add_experts(struct builder *b, struct plait_block *blk)
{
    int here = b->d->experts / b->d->ep;

    blk->experts = calloc(here, sizeof(*blk->experts));
    if (!blk->experts) {
        b->failed = true;
        return;
    }
    blk->expert_region = b->model->nregions;
    b->at = 0;
    b->expert = true;
    for (int i = 0; i < here; i++)
        add_expert(b, &blk->experts[i], b->d->expert_first + i);
    close_block(b);
    b->expert = false;
}

static void add_layer(struct builder *b, int layer)
{
    struct plait_block *blk = open_block(b, PLAIT_BLOCK_LAYER, layer);

    blk->norm1 = add_norm(b, "attention_norm.weight");
    if (b->d->bias)
        blk->norm1_bias = add_norm_bias(b, "attention_norm.bias");
    add_attention(b, blk);
    blk->norm2 = add_norm(b, "mlp_norm.weight");
    if (b->d->bias)
        blk->norm2_bias = add_norm_bias(b, "mlp_norm.bias");
    if (b->d->experts)
        add_router(b, blk);
    else
        add_mlp(b, blk);
    close_block(b);
    if (b->d->experts)
        add_experts(b, blk);
}

static void add_embedding(struct builder *b)
{
    const struct plait_model_config *c = &b->model->config->model;
    struct plait_block *blk = open_block(b, PLAIT_BLOCK_EMBEDDING, -1);
    struct plait_tensor t = split_vocab(b);
    bool one_rank = b->model->mesh->layout.size[PLAIT_PP] == 1;
    size_t at;

    t.tied = b->d->tied && !one_rank;
    if (b->d->tied && one_rank) /* the head's product comes first */
        at = add_weight(b, t, INIT_STD, false, "embedding.weight");
    else
        at = add_table(b, t, "embedding.weight");
    blk->vocab = make_matrix(b, at, b->d->vocab, c->hidden);
    if (!b->d->gated)
        blk->position = add_table(b, whole_tensor(b, c->seq_len, c->hidden),
                                  "position.weight");
    close_block(b);
}

static void add_head(struct builder *b)
{
    const struct plait_model_config *c = &b->model->config->model;
    struct plait_block *blk = open_block(b, PLAIT_BLOCK_HEAD, -1);
    struct plait_tensor t = split_vocab(b);
    bool one_rank = b->model->mesh->layout.size[PLAIT_PP] == 1;
    size_t at;

    blk->norm = add_norm(b, "norm.weight");
    if (b->d->bias)
        blk->norm_bias = add_norm_bias(b, "norm.bias");
    if (b->d->tied && one_rank) {
        /* The embedding is the first block of this rank. */
        blk->vocab = b->model->state->blocks[0].vocab;
    } else {
        t.tied = b->d->tied;
        at = add_weight(b, t, INIT_STD, false,
                        t.tied ? "embedding.weight" : "head.weight");
        blk->vocab = make_matrix(b, at, b->d->vocab, c->hidden);
    }
    close_block(b);
}

static void add_chunk(struct builder *b, int chunk)
{
    struct plait_model *m = b->model;
    struct plait_model_state *s = m->state;
    int stage =
        chunk * m->mesh->layout.size[PLAIT_PP] + m->mesh->coord.at[PLAIT_PP];
    int first, count;

    b->chunk = chunk;
    b->in_chunk = 0;
    s->chunk_first[chunk] = s->nblocks;
    plait_model_stage(m->config, s->stages, stage, &first, &count);
    if (stage == 0)
        add_embedding(b);
    for (int i = 0; i < count; i++)
        add_layer(b, first + i);
    if (stage == s->stages - 1)
        add_head(b);
    s->chunk_first[chunk + 1] = s->nblocks;
}

int plait_model_layout(struct plait_model *model)
{
    struct plait_model_state *s = model->state;
    struct builder b = {.model = model, .d = &s->dims};
    int most = 2 * model->config->model.layers + 2;

    s->stages = model->chunks * model->mesh->layout.size[PLAIT_PP];
    s->chunk_first = calloc(model->chunks + 1, sizeof(*s->chunk_first));
    s->blocks = calloc(most, sizeof(*s->blocks));
    model->regions = calloc(most, sizeof(*model->regions));
    b.failed = !s->chunk_first || !s->blocks || !model->regions;
    for (int i = 0; i < model->chunks && !b.failed; i++)
        add_chunk(&b, i);
    s->unmade = calloc(s->nproducts + 1, sizeof(*s->unmade));
    if (b.failed || !s->unmade)
        return -1;
    /* not from the tensors: a stage may have no layer */
    model->parameters = (int64_t)plait_model_parameters(&model->config->model);
    return 0;
}
