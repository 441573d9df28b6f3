/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/internal.h"
#include "topology/job/model_size.h"
#include "topology/job/mup.h"
#include "topology/job/tensors.h"

/* The tensor table: one walk over this rank's blocks makes a tensor of each
 * line of PLAIT_TENSOR_TABLE, which says its name, its sides and its order, and
 * gives it a place in the block's region. */

#define INIT_STD 0.02

/* Where the member of each line is: in a block and, if it is an mlp's, in an
 * expert. */
struct home {
    size_t in_block, in_expert;
    bool matrix; /* it is a struct plait_matrix, else a size_t */
};

#define IN_EMBEDDING(member) 0
#define IN_LAYER(member) 0
#define IN_EXPERT(member) offsetof(struct plait_expert, member)
#define IN_MTP(member) 0
#define IN_HEAD(member) 0
#define HOME(kind, member, ...)                               \
    {offsetof(struct plait_block, member), IN_##kind(member), \
     sizeof(((struct plait_block *)0)->member) ==             \
         sizeof(struct plait_matrix)},

static const struct home homes[] = {PLAIT_TENSOR_TABLE(HOME)};

struct builder {
    struct plait_model *model;
    const struct plait_dims *d;
    const struct plait_sides *sides; /* of the open block */
    struct plait_sides all, dense;   /* of most; of layers without experts in a
                                      * model that has them */
    int chunk;
    int in_chunk; /* blocks of this chunk so far */
    int layer;
    int tensors_cap;
    struct plait_block *block; /* the open one */
    int expert;                /* of it, in the whole model; -1: none */
    struct plait_matrix *last; /* matrix of a product in it */
    size_t at;                 /* elements of the open region so far */
    bool failed;
};

static int grow_table(struct builder *b)
{
    struct plait_model *m = b->model;
    struct plait_tensor *more;
    int cap;

    if (b->failed)
        return -1;
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

static void set_name(const struct builder *b, struct plait_tensor *t,
                     const struct plait_tensor_row *row)
{
    char part[32] = "";

    if (row->kind == PLAIT_KIND_EXPERT)
        snprintf(part, sizeof(part), b->expert < 0 ? "mlp." : "experts.%d.",
                 b->expert);
    if (t->layer < 0)
        snprintf(t->name, sizeof(t->name), "%s", row->name);
    else if (b->block->kind == PLAIT_BLOCK_MTP)
        snprintf(t->name, sizeof(t->name), "mtp.0.%s%s", part, row->name);
    else
        snprintf(t->name, sizeof(t->name), "layers.%d.%s%s", b->layer, part,
                 row->name);
}

/* The whole tensor's shape, and this rank's part of it. */
static void set_shape(const struct builder *b, struct plait_tensor *t,
                      const struct plait_tensor_row *row)
{
    const struct plait_side_length *sides[] = {&b->sides->at[row->rows],
                                               &b->sides->at[row->cols]};

    t->ndim = plait_tensor_is_matrix(row) ? 2 : 1;
    t->tp_axis = plait_tensor_axis(b->sides, row);
    t->tp_replicas = b->d->tp;
    for (int i = 0; i < 2; i++) {
        t->shape[i] = sides[i]->whole;
        t->local_shape[i] = sides[i]->here;
    }
    if (t->tp_axis >= 0) {
        t->local_first = sides[t->tp_axis]->first;
        t->tp_replicas = sides[t->tp_axis]->copies;
    }
    t->count = t->local_shape[0] * t->local_shape[1];
}

/* How it begins, and whether tp ranks must sum their gradients: of what is
 * multiplied with the residual stream each of them may see some rows only, of
 * what is multiplied with heads, or with the experts' outputs, some terms. */
static void set_role(const struct builder *b, struct plait_tensor *t,
                     const struct plait_tensor_row *row)
{
    const struct plait_job_config *c = b->model->config;
    struct plait_mup_scale scale = plait_mup_scale(&c->model, row);
    enum plait_tensor_role role = row->role;
    bool parts = b->d->tp > 1;

    if (role == PLAIT_ROLE_NORM || role == PLAIT_ROLE_HEAD_NORM ||
        role == PLAIT_ROLE_WIDE_NORM)
        t->init_const = c->model.norm_plus_one ? 0 : 1;
    else if (role == PLAIT_ROLE_RESIDUAL)
        t->init_std = INIT_STD / sqrt(2.0 * c->model.layers);
    else if (t->ndim == 2)
        t->init_std = INIT_STD;
    t->init_std *= scale.init;
    t->rate = scale.rate;
    t->eps = scale.eps;
    t->load = role == PLAIT_ROLE_LOAD;
    t->statistic = t->balance = t->load || role == PLAIT_ROLE_BALANCE;
    if (role == PLAIT_ROLE_NORM || role == PLAIT_ROLE_NORM_BIAS ||
        role == PLAIT_ROLE_JOIN)
        t->sequence_partial = parts && c->parallel.sequence;
    else if (role == PLAIT_ROLE_HEAD_NORM || role == PLAIT_ROLE_LATENT ||
             role == PLAIT_ROLE_ROUTER || role == PLAIT_ROLE_ROUTER_BIAS)
        t->sequence_partial = parts;
}

static bool is_bias(const struct plait_tensor_row *row)
{
    return row->role == PLAIT_ROLE_BIAS || row->role == PLAIT_ROLE_ROUTER_BIAS;
}

/* The number of the product that makes its gradient, which the bias and what
 * joins the matrix share. */
static int number_of_product(struct builder *b,
                             const struct plait_tensor_row *row, bool joined)
{
    if (row->role == PLAIT_ROLE_TABLE ||
        (!plait_tensor_is_matrix(row) && !is_bias(row)))
        return -1;
    return joined || is_bias(row) ? b->last->product
                                  : b->model->state->nproducts++;
}

/* Tells the block where it is. */
static void set_member(struct builder *b, const struct plait_tensor *t,
                       const struct plait_tensor_row *row, bool joined)
{
    const struct home *home = &homes[row - plait_tensor_table];
    struct plait_block *blk = b->block;
    void *member = (char *)blk + home->in_block;

    if (b->expert >= 0)
        member = (char *)&blk->experts[b->expert - b->d->expert_first] +
                 home->in_expert;
    if (is_bias(row))
        b->last->bias = true;
    if (!home->matrix) {
        if (!joined)
            *(size_t *)member = t->offset;
        return;
    }
    b->last = member;
    if (joined)
        b->last->O += t->local_shape[0];
    else
        *b->last = (struct plait_matrix){.region = t->region,
                                         .offset = t->offset,
                                         .O = t->local_shape[0],
                                         .C = t->local_shape[1],
                                         .product = t->product,
                                         .linear = plait_tensor_is_linear(row)};
    if (t->product >= 0)
        b->model->state->matrix[t->product] = b->last;
}

/* Whether both ends of the pipeline have it: the embedding's table, if it is
 * the head's too or the last stage looks up tokens. */
static bool is_shared(const struct builder *b,
                      const struct plait_tensor_row *row)
{
    const struct plait_model_config *c = &b->model->config->model;

    if (row->rows != PLAIT_SIDE_VOCAB ||
        b->model->mesh->layout.size[PLAIT_PP] == 1)
        return false;
    return plait_model_shares_table(c) &&
           (c->tie_embeddings || row->role == PLAIT_ROLE_TABLE);
}

static void add_tensor(struct builder *b, const struct plait_tensor_row *row,
                       bool joined)
{
    struct plait_model *m = b->model;
    struct plait_tensor *t;

    if (grow_table(b) < 0)
        return;
    if (!joined)
        b->at = plait_region_align(b->at);
    t = &m->tensors[m->ntensors++];
    memset(t, 0, sizeof(*t));
    t->layer = row->rows == PLAIT_SIDE_VOCAB ? -1 : b->layer;
    set_name(b, t, row);
    set_shape(b, t, row);
    set_role(b, t, row);
    t->product = number_of_product(b, row, joined);
    t->decay = t->ndim == 2;
    t->expert = b->expert >= 0;
    t->tied = is_shared(b, row);
    t->peaks = b->block->peaks;
    t->chunk = b->chunk;
    t->region = m->nregions;
    t->offset = b->at;
    b->at += t->count;
    if (t->balance) {
        *(t->load ? &b->block->load_exact : &b->block->router_exact) =
            t->exact = m->nexact;
        m->nexact += t->count;
    }
    set_member(b, t, row, joined);
}

static void add_rows(struct builder *b, enum plait_region_kind kind)
{
    const struct plait_tensor_row *row = NULL, *before = NULL;

    for (; (row = plait_tensor_next(b->sides, kind, before)); before = row)
        add_tensor(b, row, plait_tensor_joins(row, before));
}

static void open_block(struct builder *b, enum plait_block_kind kind, int layer)
{
    struct plait_model_state *s = b->model->state;
    struct plait_block *blk = &s->blocks[s->nblocks++];

    b->sides = kind == PLAIT_BLOCK_LAYER &&
                       plait_model_dense(&b->model->config->model, layer)
                   ? &b->dense
                   : &b->all;
    b->layer = layer;
    b->at = 0;
    b->block = blk;
    blk->kind = kind;
    blk->layer = layer;
    blk->peaks = b->model->npeaks;
    b->model->npeaks += kind == PLAIT_BLOCK_LAYER ? b->d->heads : 0;
    blk->region = b->model->nregions;
    blk->expert_region = -1;
}

static void close_block(struct builder *b)
{
    struct plait_model *m = b->model;
    struct plait_region *r = &m->regions[m->nregions++];

    r->chunk = b->chunk;
    r->expert = b->expert >= 0;
    r->block = b->in_chunk++;
    r->begin = m->count;
    r->count = plait_region_align(b->at);
    m->count += r->count;
}

static void add_block(struct builder *b, enum plait_block_kind kind,
                      enum plait_region_kind region, int layer)
{
    open_block(b, kind, layer);
    add_rows(b, region);
    close_block(b);
}

/* In the layer's second region. */
static void add_experts(struct builder *b)
{
    int here = b->d->experts / b->d->ep;
    struct plait_block *blk = b->block;

    blk->experts = calloc(here, sizeof(*blk->experts));
    if (!blk->experts) {
        b->failed = true;
        return;
    }
    blk->expert_region = b->model->nregions;
    b->at = 0;
    for (int i = 0; i < here; i++) {
        b->expert = b->d->expert_first + i;
        add_rows(b, PLAIT_KIND_EXPERT);
    }
    close_block(b);
    b->expert = -1;
}

/* Tied on one rank: the head multiplies by the table of the embedding, the
 * rank's first block. */
static void share_vocab(struct builder *b)
{
    struct plait_model_state *s = b->model->state;
    struct plait_matrix *vocab = &b->block->vocab;

    *vocab = s->blocks[0].vocab;
    s->matrix[vocab->product] = vocab;
}

/* A layer of the model's own kind, the one behind the last, and what comes
 * before and after it. */
static void add_mtp(struct builder *b)
{
    open_block(b, PLAIT_BLOCK_MTP, b->model->config->model.layers);
    add_rows(b, PLAIT_KIND_LAYER);
    add_rows(b, PLAIT_KIND_MTP);
    close_block(b);
    if (b->sides->has & PLAIT_HAS_EXPERTS)
        add_experts(b);
}

/* Where the module looks up tokens, unless it has a table of its own. */
static void share_table(struct builder *b)
{
    struct plait_model_state *s = b->model->state;
    struct plait_block *head = b->block;

    if (b->all.has & PLAIT_HAS_TABLE_APART)
        return;
    head[-1].table = b->model->config->model.tie_embeddings
                         ? head->vocab
                         : s->blocks[0].vocab;
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
        add_block(b, PLAIT_BLOCK_EMBEDDING, PLAIT_KIND_EMBEDDING, -1);
    for (int i = 0; i < count; i++) {
        add_block(b, PLAIT_BLOCK_LAYER, PLAIT_KIND_LAYER, first + i);
        if (b->sides->has & PLAIT_HAS_EXPERTS)
            add_experts(b);
    }
    if (stage == s->stages - 1 && m->config->model.mtp_layers)
        add_mtp(b);
    if (stage == s->stages - 1)
        add_block(b, PLAIT_BLOCK_HEAD, PLAIT_KIND_HEAD, -1);
    if (stage == s->stages - 1 && (b->all.has & PLAIT_HAS_TIED_HERE))
        share_vocab(b);
    if (stage == s->stages - 1 && m->config->model.mtp_layers)
        share_table(b);
    s->chunk_first[chunk + 1] = s->nblocks;
}

int plait_model_layout(struct plait_model *model)
{
    struct plait_model_state *s = model->state;
    const struct plait_mesh *mesh = model->mesh;
    const struct plait_model_config *c = &model->config->model;
    struct builder b = {.model = model, .d = &s->dims, .expert = -1};
    int most = 2 * (c->layers + c->mtp_layers) + 2;
    int products = PLAIT_TENSOR_ROWS * (1 + s->dims.experts / s->dims.ep);

    plait_sides_set(&b.all, c, mesh->layout.size[PLAIT_TP],
                    mesh->coord.at[PLAIT_TP], mesh->layout.size[PLAIT_PP] == 1);
    b.dense = b.all;
    plait_sides_dense(&b.dense, c, mesh->layout.size[PLAIT_TP],
                      mesh->coord.at[PLAIT_TP]);
    s->stages = model->chunks * mesh->layout.size[PLAIT_PP];
    s->chunk_first = calloc(model->chunks + 1, sizeof(*s->chunk_first));
    s->blocks = calloc(most, sizeof(*s->blocks));
    s->matrix = calloc((size_t)most * products, sizeof(*s->matrix));
    model->regions = calloc(most, sizeof(*model->regions));
    b.failed = !s->chunk_first || !s->blocks || !s->matrix || !model->regions;
    for (int i = 0; i < model->chunks && !b.failed; i++)
        add_chunk(&b, i);
    s->unmade = calloc(s->nproducts + 1, sizeof(*s->unmade));
    if (b.failed || !s->unmade)
        return -1;
    /* not from the tensors: a stage may have no layer */
    model->parameters = (int64_t)plait_model_parameters(c);
    return 0;
}
