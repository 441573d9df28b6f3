/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/image_shape.h"

#include <math.h>
#include <string.h>

void plait_image_walk_start(struct plait_image_walk *w,
                            const struct plait_model_config *config)
{
    *w = (struct plait_image_walk){.c = config,
                                   .C = config->image[0],
                                   .H = config->image[1],
                                   .W = config->image[2],
                                   .layer =
                                       config->family == PLAIT_RESNET ? -1 : 0};
}

/* An image's side after a convolution that is padded with zeros of half the
 * kernel's width. */
static double side_after(double side, int kernel, int stride)
{
    return floor((side + 2 * (kernel / 2) - kernel) / stride) + 1;
}

static void pass_through(struct plait_image_walk *w, double channels,
                         int kernel, int stride)
{
    w->H = side_after(w->H, kernel, stride);
    w->W = side_after(w->W, kernel, stride);
    w->C = channels;
}

static void add_unit(struct plait_image_walk *w, struct plait_image_piece *p,
                     double channels, int kernel, int stride)
{
    struct plait_image_unit *u = &p->unit[p->units++];

    u->patch = (double)kernel * kernel * w->C;
    pass_through(w, channels, kernel, stride);
    u->rows = w->H * w->W;
    u->channels = channels;
}

static void add_stem(struct plait_image_walk *w, struct plait_image_piece *p)
{
    p->place = PLAIT_IMAGE_AT_STEM;
    if (w->c->depth != 50) {
        add_unit(w, p, w->c->width, 3, 1);
        return;
    }
    add_unit(w, p, w->c->width, 7, 2);
    pass_through(w, w->C, 3, 2);
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
    double before = w->C;

    p->place = PLAIT_IMAGE_AT_LAYER;
    if (w->c->depth == 50) {
        out = 4 * width;
        add_unit(w, p, width, 1, 1);
        add_unit(w, p, width, 3, stride);
        add_unit(w, p, out, 1, 1);
    } else {
        add_unit(w, p, width, 3, stride);
        add_unit(w, p, width, 3, 1);
    }
    if (stride > 1 || before != out)
        p->unit[PLAIT_IMAGE_UNITS - 1] =
            (struct plait_image_unit){w->H * w->W, out, before};
}

static void add_dense(struct plait_image_walk *w, struct plait_image_piece *p)
{
    p->place = PLAIT_IMAGE_AT_LAYER;
    p->matrix[0] = w->c->width;
    p->matrix[1] = p->in;
    p->keeps_out = true;
    w->H = w->W = 1;
    w->C = w->c->width;
}

static void add_head(const struct plait_image_walk *w,
                     struct plait_image_piece *p)
{
    p->place = PLAIT_IMAGE_AT_HEAD;
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
    p->in = w->H * w->W * w->C;
    if (w->layer < 0)
        add_stem(w, p);
    else if (w->layer == w->c->layers)
        add_head(w, p);
    else if (w->c->family == PLAIT_RESNET)
        add_residual(w, p);
    else
        add_dense(w, p);
    p->out =
        p->place == PLAIT_IMAGE_AT_HEAD ? w->c->classes : w->H * w->W * w->C;
    w->layer++;
    return true;
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
        if (p.place != PLAIT_IMAGE_AT_HEAD && p.out > most)
            most = p.out;
    return most;
}
