/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "topology/job/image_shape.h"
#include "topology/predict/estimate_shape.h"

/* What an image model takes, block by block as runtime/model lays it out
 * (image_layout.c); activations by the table of topology/job/held.h. */

/* Passes over a convolution's output in a training step: written, read for
 * the statistics, normalised (read, written), read by the next one; backward
 * the norm's sums (3 arrays) and gradient (4), the weight's (2) and the
 * input's gradient (2). */
#define UNIT_PASSES 16
#define DENSE_PASSES 8

double plait_shape_image_elements(const struct plait_image_piece *p)
{
    double sum = 0;

    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++) {
        double channels = p->unit[i].channels;

        /* kernels, gamma with beta, the running statistics */
        sum += plait_align_up(channels * p->unit[i].patch, PLAIT_REGION_ALIGN) +
               2 * plait_align_up(2 * channels, PLAIT_REGION_ALIGN);
    }
    return sum +
           plait_align_up(p->matrix[0] * p->matrix[1], PLAIT_REGION_ALIGN) +
           plait_align_up(p->matrix[0], PLAIT_REGION_ALIGN);
}

/* -- activations ----------------------------------------------------------- */

struct kept {
    struct plait_rank_sizes z;
    double slot; /* bytes of a micro-batch in flight */
    int chunk;   /* that the last block was of; -1: none yet */
};

static double held_bytes(const struct plait_rank_sizes *z, unsigned groups)
{
    struct plait_held held[PLAIT_HELD_TENSORS];

    plait_held_list(z, held);
    return plait_held_bytes(held, groups);
}

/* Adds what the chunk holds beside its blocks' activations. */
static void end_chunk(struct kept *k)
{
    if (k->chunk >= 0)
        k->slot += held_bytes(&k->z, PLAIT_HELD_SET(IMAGE_SLOT));
}

static void keep_piece(const struct plait_image_piece *p, int chunk, void *arg)
{
    struct kept *k = arg;
    struct plait_rank_sizes *z = &k->z;

    if (chunk != k->chunk) {
        end_chunk(k);
        k->chunk = chunk;
        z->first_in = p->in;
    }
    z->last_in = p->in;
    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++) {
        z->channels = p->unit[i].channels;
        z->unit = p->unit[i].rows * z->channels;
        if (z->unit > 0)
            k->slot += held_bytes(z, PLAIT_HELD_SET(IMAGE_UNIT));
    }
    z->out = p->out;
    if (p->keeps_out)
        k->slot += held_bytes(z, PLAIT_HELD_SET(IMAGE_OUT));
}

double plait_shape_image_activations(const struct plait_shape *s,
                                     const struct plait_rank_sizes *z, int rank,
                                     int slots)
{
    struct kept k = {.z = *z, .chunk = -1};

    plait_rank_sizes_widest(&k.z, s->c, s->pp, rank);
    plait_image_visit(s->c, s->pp, rank, keep_piece, &k);
    end_chunk(&k);
    return held_bytes(&k.z, PLAIT_HELD_SET(IMAGE_WORK)) + slots * k.slot;
}

/* -- what an optimizer keeps that is not the same of every weight ---------- */

struct matrices {
    double sides;   /* rows and columns */
    double weights; /* of those of layers */
    double largest, side;
    int max_dim;        /* of SOAP's squares */
    double owned, most; /* numbers of SOAP's owners: of all, of one at most */
    double square;      /* the largest */
};

static void add_owned(struct matrices *m, double rows, double columns)
{
    double a = rows <= m->max_dim ? rows * rows : 0;
    double b = columns <= m->max_dim ? columns * columns : 0;
    double owned = 2 * (rows * columns + a + b);

    m->owned += owned;
    m->most = fmax(m->most, owned);
    m->square = fmax(m->square, fmax(a, b));
}

static void add_matrix(struct matrices *m, bool of_layer, double rows,
                       double columns)
{
    m->sides += rows + columns;
    if (!of_layer)
        return;
    m->weights += rows * columns;
    m->largest = fmax(m->largest, rows * columns);
    m->side = fmax(m->side, fmin(rows, columns));
    add_owned(m, rows, columns);
}

static void add_matrices(const struct plait_image_piece *p, int chunk,
                         void *arg)
{
    bool of_layer =
        p->kind == PLAIT_IMAGE_RESIDUAL || p->kind == PLAIT_IMAGE_DENSE;

    (void)chunk;
    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++)
        if (p->unit[i].channels > 0)
            add_matrix(arg, of_layer, p->unit[i].channels, p->unit[i].patch);
    if (p->matrix[0] > 0)
        add_matrix(arg, of_layer, p->matrix[0], p->matrix[1]);
}

/* Bytes for the layers' matrices, beside the state of each weight. SOAP's
 * matrices have owners among the data-parallel ranks, about evenly. */
static double matrix_bytes(const struct plait_shape *s,
                           const struct matrices *m, double sharing)
{
    if (s->c->optim.kind == PLAIT_OPTIM_SOAP)
        return 4 * (fmax(m->owned / s->dp, m->most) +
                    (2 + (sharing > 1)) * m->largest + m->square);
    return 4 * ((sharing > 1 ? 2 : 1) * m->largest + 2 * m->side * m->side);
}

double plait_shape_image_uneven_bytes(const struct plait_shape *s, int rank)
{
    const struct plait_optimizer *o = &plait_optimizers[s->c->optim.kind];
    double sharing = s->c->parallel.zero ? s->dp : 1;
    struct matrices m = {.max_dim = s->c->optim.max_dim};

    if (!o->uneven)
        return 0;
    plait_image_visit(s->c, s->pp, rank, add_matrices, &m);
    if (s->c->optim.kind == PLAIT_OPTIM_ADAFACTOR)
        return 8 * m.sides;
    return (o->matrix - o->bytes) * m.weights / sharing +
           matrix_bytes(s, &m, sharing);
}

/* -- time ------------------------------------------------------------------ */

void plait_shape_image_work(const struct plait_shape *s,
                            struct plait_image_cost *layer,
                            struct plait_image_cost *head)
{
    struct plait_image_walk w;
    struct plait_image_piece p;

    *layer = *head = (struct plait_image_cost){0};
    plait_image_walk_start(&w, s->m);
    while (plait_image_walk_next(&w, &p)) {
        struct plait_image_cost *to = p.kind == PLAIT_IMAGE_HEAD ? head : layer;

        to->flops += 2 * plait_image_piece_macs(&p);
        to->bytes += 4 * DENSE_PASSES * p.matrix[0];
        for (int i = 0; i < PLAIT_IMAGE_UNITS; i++)
            to->bytes +=
                4.0 * UNIT_PASSES * p.unit[i].rows * p.unit[i].channels;
    }
    /* The stem's work is spread over the layers. */
    layer->flops /= fmax(s->m->layers, 1);
    layer->bytes /= fmax(s->m->layers, 1);
}
