/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/image.h"
#include "topology/job/tensors.h"

/* The tensor table of image models: of what topology/job/image_shape.h visits
 * on this rank, each block's convolutions in the form that kernels take, and
 * its tensors one behind the other in its region. */

#define TENSORS_MOST (5 * PLAIT_IMAGE_UNITS + 2)

struct builder {
    struct plait_model *model;
    int layer; /* -1: stem or head */
    int chunk, in_chunk;
    size_t at; /* elements of the open region */
};

/* -- shapes ------------------------------------------------------------------
 */

static struct plait_conv conv_of(const struct plait_image_unit *u)
{
    if (!u->kernel)
        return (struct plait_conv){0};
    return (struct plait_conv){.N = 1,
                               .H = (size_t)u->H,
                               .W = (size_t)u->W,
                               .C = (size_t)u->C,
                               .O = (size_t)u->channels,
                               .kernel = u->kernel,
                               .stride = u->stride,
                               .pad = u->kernel / 2};
}

static struct plait_image_block block_of(const struct plait_image_piece *p)
{
    struct plait_image_block b = {
        .kind = p->kind,
        .first = p->first,
        .nunits = p->units,
        .projected = p->unit[PLAIT_IMAGE_SHORTCUT].kernel > 0,
        .pooled = p->pool.kernel > 0,
        .pool = conv_of(&p->pool),
        .matrix = {.O = (size_t)p->matrix[0], .C = (size_t)p->matrix[1]},
        .in = (size_t)p->in,
        .out = (size_t)p->out};

    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++)
        b.unit[i].conv = conv_of(&p->unit[i]);
    if (p->kind == PLAIT_IMAGE_HEAD)
        b.rows = b.in / b.matrix.C;
    return b;
}

/* -- tensors ------------------------------------------------------------------
 */

/* joined: directly behind the previous tensor, without a gap. */
static size_t add_tensor(struct builder *w, struct plait_tensor t, bool joined,
                         const char *name)
{
    struct plait_model *m = w->model;

    if (!joined)
        w->at = plait_region_align(w->at);
    if (w->layer < 0)
        snprintf(t.name, sizeof(t.name), "%s", name);
    else
        snprintf(t.name, sizeof(t.name), "layers.%d.%s", w->layer, name);
    t.tp_axis = -1;
    t.tp_replicas = 1;
    t.rate = t.eps = 1;
    t.decay = t.ndim == 2;
    t.layer = w->layer;
    t.chunk = w->chunk;
    t.region = m->nregions;
    t.offset = w->at;
    t.local_shape[0] = t.shape[0];
    t.local_shape[1] = t.shape[1];
    t.count = t.shape[0] * t.shape[1];
    w->at += t.count;
    m->tensors[m->ntensors++] = t;
    return t.offset;
}

static size_t add_vector(struct builder *w, size_t n, double value, bool joined,
                         const char *name)
{
    struct plait_tensor t = {
        .ndim = 1, .shape = {n, 1}, .product = -1, .init_const = value};

    return add_tensor(w, t, joined, name);
}

static size_t add_statistic(struct builder *w, size_t n, double value,
                            bool joined, const char *name)
{
    size_t at = add_vector(w, n, value, joined, name);

    w->model->tensors[w->model->ntensors - 1].statistic = true;
    return at;
}

/* A matrix whose gradient is computed by a product. */
static size_t add_matrix(struct builder *w, size_t O, size_t C, double std,
                         int *product, const char *name)
{
    struct plait_tensor t = {.ndim = 2, .shape = {O, C}, .init_std = std};

    *product = t.product = w->model->state->nproducts++;
    return add_tensor(w, t, false, name);
}

/* Initial weights: He et al., arXiv 1502.01852, preserving the variance in the
 * backward pass, as torchvision's resnets do. */
static void add_unit_tensors(struct builder *w, struct plait_unit *u,
                             const char *name)
{
    const struct plait_conv *c = &u->conv;
    double fan_out = (double)c->kernel * c->kernel * c->O;
    char full[64];

    snprintf(full, sizeof(full), "%s.weight", name);
    u->weight = add_matrix(w, c->O, plait_conv_patch(c), sqrt(2 / fan_out),
                           &u->product, full);
    snprintf(full, sizeof(full), "%s.norm.bias", name);
    u->beta = add_vector(w, c->O, 0, false, full);
    snprintf(full, sizeof(full), "%s.norm.weight", name);
    add_vector(w, c->O, 1, true, full);
    snprintf(full, sizeof(full), "%s.norm.mean", name);
    u->running = add_statistic(w, c->O, 0, false, full);
    snprintf(full, sizeof(full), "%s.norm.variance", name);
    add_statistic(w, c->O, 1, true, full);
}

static void add_block_tensors(struct builder *w, struct plait_image_block *b)
{
    static const char *const names[PLAIT_IMAGE_UNITS] = {"conv1", "conv2",
                                                         "conv3", "shortcut"};
    bool head = b->kind == PLAIT_IMAGE_HEAD;
    double gain = head ? 1 : 2; /* a ReLU loses half of the sum of squares */
    struct plait_tensor *bias;

    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++)
        if (b->unit[i].conv.O)
            add_unit_tensors(w, &b->unit[i],
                             b->kind == PLAIT_IMAGE_STEM ? "stem" : names[i]);
    if (!b->matrix.O)
        return;
    b->matrix.region = w->model->nregions;
    b->matrix.offset =
        add_matrix(w, b->matrix.O, b->matrix.C, sqrt(gain / b->matrix.C),
                   &b->matrix.product, head ? "head.weight" : "weight");
    b->bias = add_vector(w, b->matrix.O, 0, false, head ? "head.bias" : "bias");
    bias = &w->model->tensors[w->model->ntensors - 1];
    bias->product = b->matrix.product;
}

static void open_chunk(struct builder *w, int chunk)
{
    if (chunk != w->chunk)
        w->in_chunk = 0;
    w->chunk = chunk;
    w->model->state->chunk_first[chunk + 1] = w->model->nregions + 1;
}

static void place_block(const struct plait_image_piece *p, int chunk, void *arg)
{
    struct builder *w = arg;
    struct plait_model *m = w->model;
    struct plait_image_block *b = &m->image->block[m->nregions];
    struct plait_region *r = &m->regions[m->nregions];

    open_chunk(w, chunk);
    *b = block_of(p);
    w->layer = p->kind == PLAIT_IMAGE_HEAD ? -1 : p->layer;
    w->at = 0;
    add_block_tensors(w, b);
    r->chunk = chunk;
    r->block = w->in_chunk++;
    r->begin = m->count;
    r->count = plait_region_align(w->at);
    m->count += r->count;
    m->nregions++;
    m->state->nblocks++;
}

/* What does not depend on the rank. */
static void count_model(struct plait_model *m)
{
    const struct plait_model_config *c = &m->config->model;

    m->parameters = (int64_t)plait_image_parameters(c);
    m->statistics = (int64_t)plait_image_statistics(c);
    m->image->macs = plait_image_macs(c);
    m->image->boundary = (size_t)plait_image_boundary(c);
}

int plait_image_layout(struct plait_model *m)
{
    const struct plait_mesh *mesh = m->mesh;
    int most = m->config->model.layers + 2, pp = mesh->layout.size[PLAIT_PP];
    struct builder w = {.model = m};

    m->state->stages = m->chunks * pp;
    m->state->chunk_first = calloc(m->chunks + 1, sizeof(int));
    m->image = calloc(1, sizeof(*m->image));
    m->tensors = calloc((size_t)most * TENSORS_MOST, sizeof(*m->tensors));
    m->regions = calloc(most, sizeof(*m->regions));
    if (!m->state->chunk_first || !m->image || !m->tensors || !m->regions)
        return -1;
    m->image->block = calloc(most, sizeof(*m->image->block));
    if (!m->image->block)
        return -1;
    count_model(m);
    plait_image_visit(m->config, pp, mesh->coord.at[PLAIT_PP], place_block, &w);
    m->state->unmade = calloc(m->state->nproducts + 1, sizeof(bool));
    return m->state->unmade ? 0 : -1;
}
