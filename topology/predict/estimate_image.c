/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "topology/job/image_shape.h"
#include "topology/predict/estimate_shape.h"

/* What an image model takes, block by block as runtime/model lays it out
 * (image_layout.c) and allocates it (image_arena.c). */

#define REGION 64 /* elements, of a block's tensors */
#define BLOCK 256 /* bytes, of an activation */

/* Passes over a convolution's output in a training step: written, read for
 * the statistics, normalised (read, written), read by the next one; backward
 * the norm's sums (3 arrays) and gradient (4), the weight's (2) and the
 * input's gradient (2). */
#define UNIT_PASSES 16
#define DENSE_PASSES 8

/* n fp32 numbers, as the arena places them. */
static double take(double n)
{
    return plait_align_up(4 * n, BLOCK);
}

double plait_shape_image_elements(const struct plait_image_piece *p)
{
    double sum = 0;

    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++) {
        double channels = p->unit[i].channels;

        /* kernels, gamma with beta, the running statistics */
        sum += plait_align_up(channels * p->unit[i].patch, REGION) +
               2 * plait_align_up(2 * channels, REGION);
    }
    return sum + plait_align_up(p->matrix[0] * p->matrix[1], REGION) +
           plait_align_up(p->matrix[0], REGION);
}

/* -- activations ----------------------------------------------------------- */

struct kept {
    double N, groups;
    double slot;    /* bytes of a micro-batch in flight */
    double largest; /* numbers of an image that a block reads or writes */
    double norm;    /* channels of the widest */
    double head;    /* columns of the head's matrix */
    double last_in; /* of the block before, during the walk */
    int chunk;      /* that `last_in` is of; -1: none yet */
};

static void keep_piece(const struct plait_image_piece *p, int chunk, void *arg)
{
    struct kept *k = arg;

    if (chunk != k->chunk) {
        k->slot += take(k->N) + take(k->N * p->in); /* labels, input */
        if (k->chunk >= 0)
            k->slot += take(k->N * k->last_in);
    }
    k->chunk = chunk;
    k->last_in = p->in;
    k->largest = fmax(k->largest, fmax(p->in, p->out));
    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++) {
        double n = p->unit[i].rows * p->unit[i].channels;

        if (n <= 0)
            continue;
        k->slot +=
            2 * take(k->N * n) + take(2 * k->groups * p->unit[i].channels);
        k->largest = fmax(k->largest, n);
        k->norm = fmax(k->norm, p->unit[i].channels);
    }
    if (p->keeps_out)
        k->slot += take(k->N * p->out);
    if (p->kind == PLAIT_IMAGE_HEAD)
        k->head = p->matrix[1];
}

double plait_shape_image_activations(const struct plait_shape *s, int rank,
                                     int slots)
{
    struct kept k = {.N = s->c->train.micro_batch, .groups = 1, .chunk = -1};
    double sum;

    if (s->m->norm == PLAIT_NORM_GHOST)
        k.groups = floor(k.N / s->m->ghost_batch);
    plait_image_visit(s->c, s->pp, rank, keep_piece, &k);
    k.slot += take(k.N * k.last_in); /* the last block's gradient */
    sum = 3 * take(k.N * k.largest) + take(k.groups * 2 * k.norm) +
          2 * take(k.N * k.head) + take(k.N * s->m->classes);
    if (s->m->norm == PLAIT_NORM_SYNC)
        sum += take(s->dp * 2 * k.norm);
    return sum + slots * k.slot;
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
