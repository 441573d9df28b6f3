/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/image.h"
#include "topology/job/stage.h"

/* The tensor table of image models: one walk over all blocks of the model
 * computes and counts their shapes; blocks of this rank also get their tensors.
 *
 * The resnets are those of He et al., arXiv 1512.03385: of 6 n + 2 layers as in
 * section 4.2, and of 50 as in table 1. If a block changes the shape, its
 * shortcut is a convolution (option B). */

#define REGION_ALIGN 64 /* elements */
#define MOST_TENSORS (5 * PLAIT_UNITS + 2)

struct walk {
    struct plait_model *model;
    const struct plait_model_config *c;
    size_t H, W, C; /* shape of the next block's input */
    int layer;      /* -1: stem or head */
    int chunk, in_chunk;
    size_t at; /* elements of the open region */
};

/* -- shapes ------------------------------------------------------------------
 */

static size_t size_of(const struct walk *w)
{
    return w->H * w->W * w->C;
}

static struct plait_conv conv_here(const struct walk *w, size_t O, int kernel,
                                   int stride)
{
    return (struct plait_conv){.N = 1,
                               .H = w->H,
                               .W = w->W,
                               .C = w->C,
                               .O = O,
                               .kernel = kernel,
                               .stride = stride,
                               .pad = kernel / 2};
}

static void pass_through(struct walk *w, const struct plait_conv *c)
{
    w->H = plait_conv_side(c, c->H);
    w->W = plait_conv_side(c, c->W);
    w->C = c->O;
}

static void add_unit(struct walk *w, struct plait_image_block *b, size_t O,
                     int kernel, int stride)
{
    struct plait_conv *conv = &b->unit[b->nunits++].conv;

    *conv = conv_here(w, O, kernel, stride);
    pass_through(w, conv);
}

static void describe_stem(struct walk *w, struct plait_image_block *b)
{
    b->kind = PLAIT_IMAGE_STEM;
    if (w->c->depth != 50) {
        add_unit(w, b, (size_t)w->c->width, 3, 1);
        return;
    }
    add_unit(w, b, (size_t)w->c->width, 7, 2);
    b->pooled = true;
    b->pool = conv_here(w, w->C, 3, 2);
    pass_through(w, &b->pool);
}

/* The group of equal width that residual block i belongs to; *begins: whether
 * it is the group's first. */
static int find_group(const struct plait_model_config *c, int i, bool *begins)
{
    static const int bottlenecks[] = {3, 4, 6, 3};
    int group = 0;

    for (;; group++) {
        int n = c->depth == 50 ? bottlenecks[group] : c->layers / 3;

        if (i < n)
            break;
        i -= n;
    }
    *begins = i == 0;
    return group;
}

static void describe_residual(struct walk *w, struct plait_image_block *b)
{
    bool begins;
    int group = find_group(w->c, w->layer, &begins);
    int stride = begins && group > 0 ? 2 : 1;
    size_t width = (size_t)w->c->width << group, out = width;
    struct walk before = *w;

    b->kind = PLAIT_IMAGE_RESIDUAL;
    if (w->c->depth == 50) {
        out = 4 * width;
        add_unit(w, b, width, 1, 1);
        add_unit(w, b, width, 3, stride);
        add_unit(w, b, out, 1, 1);
    } else {
        add_unit(w, b, width, 3, stride);
        add_unit(w, b, width, 3, 1);
    }
    b->projected = stride > 1 || before.C != out;
    if (b->projected)
        b->unit[PLAIT_SHORTCUT].conv = conv_here(&before, out, 1, stride);
}

static void describe_dense(struct walk *w, struct plait_image_block *b)
{
    b->kind = PLAIT_IMAGE_DENSE;
    b->matrix.O = (size_t)w->c->width;
    b->matrix.C = size_of(w);
    w->H = w->W = 1;
    w->C = b->matrix.O;
}

static void describe_head(struct walk *w, struct plait_image_block *b)
{
    b->kind = PLAIT_IMAGE_HEAD;
    b->rows = w->c->family == PLAIT_RESNET ? w->H * w->W : 1;
    b->matrix.O = (size_t)w->c->classes;
    b->matrix.C = size_of(w) / b->rows;
}

static double macs_of(const struct plait_image_block *b)
{
    double sum = (double)b->matrix.O * b->matrix.C;

    for (int i = 0; i < PLAIT_UNITS; i++)
        if (b->unit[i].conv.O)
            sum += (double)plait_conv_rows(&b->unit[i].conv) *
                   plait_conv_patch(&b->unit[i].conv) * b->unit[i].conv.O;
    return sum;
}

static void count_block(struct plait_model *m,
                        const struct plait_image_block *b)
{
    m->parameters += (int64_t)(b->matrix.O * (b->matrix.C + 1));
    for (int i = 0; i < PLAIT_UNITS; i++) {
        const struct plait_conv *c = &b->unit[i].conv;

        m->parameters += (int64_t)(c->O * (plait_conv_patch(c) + 2));
        m->statistics += (int64_t)(2 * c->O);
    }
    m->image->macs += macs_of(b);
}

/* The largest tensor of one image that the block reads or writes. */
static size_t largest_of(const struct plait_image_block *b)
{
    size_t most = b->in > b->out ? b->in : b->out;

    for (int i = 0; i < PLAIT_UNITS; i++) {
        const struct plait_conv *c = &b->unit[i].conv;

        if (c->O && plait_conv_rows(c) * c->O > most)
            most = plait_conv_rows(c) * c->O;
    }
    return most;
}

/* -- tensors ------------------------------------------------------------------
 */

/* joined: directly behind the previous tensor, without a gap. */
static size_t add_tensor(struct walk *w, struct plait_tensor t, bool joined,
                         const char *name)
{
    struct plait_model *m = w->model;

    if (!joined)
        w->at = (w->at + REGION_ALIGN - 1) / REGION_ALIGN * REGION_ALIGN;
    if (w->layer < 0)
        snprintf(t.name, sizeof(t.name), "%s", name);
    else
        snprintf(t.name, sizeof(t.name), "layers.%d.%s", w->layer, name);
    t.tp_axis = -1;
    t.tp_replicas = 1;
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

static size_t add_vector(struct walk *w, size_t n, double value, bool joined,
                         const char *name)
{
    struct plait_tensor t = {
        .ndim = 1, .shape = {n, 1}, .product = -1, .init_const = value};

    return add_tensor(w, t, joined, name);
}

static size_t add_statistic(struct walk *w, size_t n, double value, bool joined,
                            const char *name)
{
    size_t at = add_vector(w, n, value, joined, name);

    w->model->tensors[w->model->ntensors - 1].statistic = true;
    return at;
}

/* A matrix whose gradient is computed by a product. */
static size_t add_matrix(struct walk *w, size_t O, size_t C, double std,
                         int *product, const char *name)
{
    struct plait_tensor t = {.ndim = 2, .shape = {O, C}, .init_std = std};

    *product = t.product = w->model->state->nproducts++;
    return add_tensor(w, t, false, name);
}

/* Initial weights: He et al., arXiv 1502.01852, preserving the variance in the
 * backward pass, as torchvision's resnets do. */
static void add_unit_tensors(struct walk *w, struct plait_unit *u,
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

static void add_block_tensors(struct walk *w, struct plait_image_block *b)
{
    static const char *const names[PLAIT_UNITS] = {"conv1", "conv2", "conv3",
                                                   "shortcut"};
    bool head = b->kind == PLAIT_IMAGE_HEAD;
    double gain = head ? 1 : 2; /* a ReLU loses half of the sum of squares */
    struct plait_tensor *bias;

    for (int i = 0; i < PLAIT_UNITS; i++)
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

static void place_block(struct walk *w, const struct plait_image_block *b)
{
    struct plait_model *m = w->model;
    struct plait_image_block *here = &m->image->block[m->nregions];
    struct plait_region *r = &m->regions[m->nregions];

    *here = *b;
    w->at = 0;
    add_block_tensors(w, here);
    if (largest_of(b) > m->image->largest)
        m->image->largest = largest_of(b);
    r->chunk = w->chunk;
    r->block = w->in_chunk++;
    r->begin = m->count;
    r->count = (w->at + REGION_ALIGN - 1) / REGION_ALIGN * REGION_ALIGN;
    m->count += r->count;
    m->nregions++;
    m->state->nblocks++;
}

/* -- the walk
 * ------------------------------------------------------------------ */

/* The chunk of this rank that has the block, -1: none. layer: -1 for the stem,
 * the number of layers for the head. */
static int chunk_of(const struct plait_model *m, int layer)
{
    int pp = m->mesh->layout.size[PLAIT_PP], first, count;

    for (int chunk = 0; chunk < m->chunks; chunk++) {
        int stage = chunk * pp + m->mesh->coord.at[PLAIT_PP];
        int stages = m->state->stages;

        plait_model_stage(m->config, stages, stage, &first, &count);
        if ((layer >= first && layer < first + count) ||
            (layer < 0 && stage == 0) ||
            (layer == m->config->model.layers && stage == stages - 1))
            return chunk;
    }
    return -1;
}

static void open_chunk(struct walk *w, int chunk)
{
    if (chunk != w->chunk)
        w->in_chunk = 0;
    w->chunk = chunk;
    w->model->state->chunk_first[chunk + 1] = w->model->nregions + 1;
}

static void walk_block(struct walk *w, int layer)
{
    struct plait_image_block b = {.in = size_of(w)};
    int layers = w->c->layers, chunk = chunk_of(w->model, layer);
    bool resnet = w->c->family == PLAIT_RESNET;

    w->layer = layer < layers ? layer : -1;
    b.first = layer == (resnet ? -1 : 0);
    if (layer < 0)
        describe_stem(w, &b);
    else if (layer == layers)
        describe_head(w, &b);
    else if (resnet)
        describe_residual(w, &b);
    else
        describe_dense(w, &b);
    b.out = layer == layers ? (size_t)w->c->classes : size_of(w);
    count_block(w->model, &b);
    if (layer < layers && b.out > w->model->image->boundary)
        w->model->image->boundary = b.out;
    if (chunk < 0)
        return;
    open_chunk(w, chunk);
    place_block(w, &b);
}

int plait_image_layout(struct plait_model *m)
{
    const struct plait_model_config *c = &m->config->model;
    struct walk w = {.model = m,
                     .c = c,
                     .C = (size_t)c->image[0],
                     .H = (size_t)c->image[1],
                     .W = (size_t)c->image[2]};
    int most = c->layers + 2;

    m->state->stages = m->chunks * m->mesh->layout.size[PLAIT_PP];
    m->state->chunk_first = calloc(m->chunks + 1, sizeof(int));
    m->image = calloc(1, sizeof(*m->image));
    m->tensors = calloc((size_t)most * MOST_TENSORS, sizeof(*m->tensors));
    m->regions = calloc(most, sizeof(*m->regions));
    if (!m->state->chunk_first || !m->image || !m->tensors || !m->regions)
        return -1;
    m->image->block = calloc(most, sizeof(*m->image->block));
    if (!m->image->block)
        return -1;
    for (int i = c->family == PLAIT_RESNET ? -1 : 0; i <= c->layers; i++)
        walk_block(&w, i);
    m->state->unmade = calloc(m->state->nproducts + 1, sizeof(bool));
    return m->state->unmade ? 0 : -1;
}
