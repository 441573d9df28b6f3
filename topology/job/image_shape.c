/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/image_shape.h"

#include <math.h>
#include <string.h>

#include "topology/job/stage.h"

/* The layer that a model's first piece has: -1 for the stem. */
static int first_layer(const struct plait_model_config *c)
{
    return c->family == PLAIT_RESNET ? -1 : 0;
}

void plait_image_walk_start(struct plait_image_walk *w,
                            const struct plait_model_config *config)
{
    *w = (struct plait_image_walk){.c = config,
                                   .C = config->image[0],
                                   .H = config->image[1],
                                   .W = config->image[2],
                                   .layer = first_layer(config)};
}

static double side_after(double side, int kernel, int stride)
{
    return floor((side + 2 * (kernel / 2) - kernel) / stride) + 1;
}

/* What turns the walk's shape into `channels`, without walking on. */
static struct plait_image_unit unit_here(const struct plait_image_walk *w,
                                         double channels, int kernel,
                                         int stride)
{
    return (struct plait_image_unit){.H = w->H,
                                     .W = w->W,
                                     .C = w->C,
                                     .kernel = kernel,
                                     .stride = stride,
                                     .rows = side_after(w->H, kernel, stride) *
                                             side_after(w->W, kernel, stride),
                                     .channels = channels,
                                     .patch = (double)kernel * kernel * w->C};
}

static void pass_through(struct plait_image_walk *w,
                         const struct plait_image_unit *u)
{
    w->H = side_after(w->H, u->kernel, u->stride);
    w->W = side_after(w->W, u->kernel, u->stride);
    w->C = u->channels;
}

static void add_unit(struct plait_image_walk *w, struct plait_image_piece *p,
                     double channels, int kernel, int stride)
{
    struct plait_image_unit *u = &p->unit[p->units++];

    *u = unit_here(w, channels, kernel, stride);
    pass_through(w, u);
}

static void add_stem(struct plait_image_walk *w, struct plait_image_piece *p)
{
    p->kind = PLAIT_IMAGE_STEM;
    if (w->c->depth != 50) {
        add_unit(w, p, w->c->width, 3, 1);
        return;
    }
    add_unit(w, p, w->c->width, 7, 2);
    p->pool = unit_here(w, w->C, 3, 2);
    pass_through(w, &p->pool);
    p->keeps_out = true;
}

/* The group of equal width that residual block i belongs to; *begins: i is the
 * first of it. */
static int find_group(const struct plait_model_config *c, int i, bool *begins)
{
    static const int bottlenecks[] = {3, 4, 6, 3};
    int group = 0;

    for (;; group++) {
        int n = c->depth == 50 ? bottlenecks[group] : c->layers / 3;

        if (i < n || group == 3)
            break;
        i -= n;
    }
    *begins = i == 0;
    return group;
}

static void add_residual(struct plait_image_walk *w,
                         struct plait_image_piece *p)
{
    bool begins;
    int group = find_group(w->c, w->layer, &begins);
    int stride = begins && group > 0 ? 2 : 1;
    double width = (double)w->c->width * (1 << group), out = width;
    struct plait_image_walk before = *w;

    p->kind = PLAIT_IMAGE_RESIDUAL;
    if (w->c->depth == 50) {
        out = 4 * width;
        add_unit(w, p, width, 1, 1);
        add_unit(w, p, width, 3, stride);
        add_unit(w, p, out, 1, 1);
    } else {
        add_unit(w, p, width, 3, stride);
        add_unit(w, p, width, 3, 1);
    }
    if (stride > 1 || before.C != out)
        p->unit[PLAIT_IMAGE_SHORTCUT] = unit_here(&before, out, 1, stride);
}

static void add_dense(struct plait_image_walk *w, struct plait_image_piece *p)
{
    p->kind = PLAIT_IMAGE_DENSE;
    p->matrix[0] = w->c->width;
    p->matrix[1] = p->in;
    p->keeps_out = true;
    w->H = w->W = 1;
    w->C = w->c->width;
}

static void add_head(const struct plait_image_walk *w,
                     struct plait_image_piece *p)
{
    p->kind = PLAIT_IMAGE_HEAD;
    p->matrix[0] = w->c->classes;
    p->matrix[1] = w->c->family == PLAIT_RESNET ? w->C : p->in;
}

bool plait_image_walk_next(struct plait_image_walk *w,
                           struct plait_image_piece *p)
{
    if (w->layer > w->c->layers)
        return false;
    memset(p, 0, sizeof(*p));
    p->layer = w->layer;
    p->first = w->layer == first_layer(w->c);
    p->in = w->H * w->W * w->C;
    if (w->layer < 0)
        add_stem(w, p);
    else if (w->layer == w->c->layers)
        add_head(w, p);
    else if (w->c->family == PLAIT_RESNET)
        add_residual(w, p);
    else
        add_dense(w, p);
    p->out = p->kind == PLAIT_IMAGE_HEAD ? w->c->classes : w->H * w->W * w->C;
    w->layer++;
    return true;
}

/* The chunk of pipeline rank `rank` that has the piece, -1: none. */
static int chunk_of(const struct plait_job_config *c, int pp, int rank,
                    const struct plait_image_piece *p)
{
    int chunks = plait_model_chunks(&c->parallel), stages = pp * chunks;

    for (int chunk = 0; chunk < chunks; chunk++) {
        int stage = chunk * pp + rank, first, count;

        plait_model_stage(c, stages, stage, &first, &count);
        if ((p->layer >= first && p->layer < first + count) ||
            (p->kind == PLAIT_IMAGE_STEM && stage == 0) ||
            (p->kind == PLAIT_IMAGE_HEAD && stage == stages - 1))
            return chunk;
    }
    return -1;
}

void plait_image_visit(const struct plait_job_config *config, int pp, int rank,
                       plait_image_piece_fn *visit, void *arg)
{
    struct plait_image_walk w;
    struct plait_image_piece p;

    plait_image_walk_start(&w, &config->model);
    while (plait_image_walk_next(&w, &p)) {
        int chunk = chunk_of(config, pp, rank, &p);

        if (chunk >= 0)
            visit(&p, chunk, arg);
    }
}

double plait_image_piece_parameters(const struct plait_image_piece *p)
{
    double sum = p->matrix[0] * (p->matrix[1] + 1);

    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++)
        sum += p->unit[i].channels * (p->unit[i].patch + 2);
    return sum;
}

double plait_image_piece_macs(const struct plait_image_piece *p)
{
    double sum = p->matrix[0] * p->matrix[1];

    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++)
        sum += p->unit[i].rows * p->unit[i].channels * p->unit[i].patch;
    return sum;
}

static double sum_pieces(const struct plait_model_config *config,
                         double (*count)(const struct plait_image_piece *p))
{
    struct plait_image_walk w;
    struct plait_image_piece p;
    double sum = 0;

    plait_image_walk_start(&w, config);
    while (plait_image_walk_next(&w, &p))
        sum += count(&p);
    return sum;
}

double plait_image_parameters(const struct plait_model_config *config)
{
    return sum_pieces(config, plait_image_piece_parameters);
}

static double count_statistics(const struct plait_image_piece *p)
{
    double sum = 0;

    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++)
        sum += 2 * p->unit[i].channels;
    return sum;
}

double plait_image_statistics(const struct plait_model_config *config)
{
    return sum_pieces(config, count_statistics);
}

double plait_image_macs(const struct plait_model_config *config)
{
    return sum_pieces(config, plait_image_piece_macs);
}

double plait_image_boundary(const struct plait_model_config *config)
{
    struct plait_image_walk w;
    struct plait_image_piece p;
    double most = 0;

    plait_image_walk_start(&w, config);
    while (plait_image_walk_next(&w, &p))
        if (p.kind != PLAIT_IMAGE_HEAD && p.out > most)
            most = p.out;
    return most;
}
