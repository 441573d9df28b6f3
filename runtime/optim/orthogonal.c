/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/orthogonal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/linear.h"

#define ITERATIONS 5
#define LEAST_NORM 1e-7
#define CHUNK ((size_t)1 << 20) /* elements converted to fp32 at a time */

static const float coefficient[3] = {3.4445f, -4.7750f, 2.0315f};

struct plait_orthogonal {
    struct plait_mesh *mesh;
    enum plait_dtype type;
    /* Device memory: the next X; A = X X^T; b A + c A^2. */
    void *next, *gram, *poly;
    float *wide;     /* NULL if the type is fp32 */
    double *squares; /* one */
};

static void *allocate(struct plait_orthogonal *o, size_t elements, size_t size)
{
    return o->mesh->ops->alloc(o->mesh->dev, (elements + 1) * size);
}

struct plait_orthogonal *plait_orthogonal_create(struct plait_mesh *mesh,
                                                 enum plait_dtype type,
                                                 size_t largest, size_t side)
{
    struct plait_orthogonal *o = calloc(1, sizeof(*o));
    size_t size = plait_dtype_size(type);
    size_t wide = side * side > CHUNK ? side * side : CHUNK;

    if (!o)
        return NULL;
    o->mesh = mesh;
    o->type = type;
    o->next = allocate(o, largest, size);
    o->gram = allocate(o, side * side, size);
    o->poly = allocate(o, side * side, size);
    o->squares = allocate(o, 1, sizeof(*o->squares));
    if (type != PLAIT_F32)
        o->wide = allocate(o, wide, sizeof(*o->wide));
    if (!o->next || !o->gram || !o->poly || !o->squares ||
        (type != PLAIT_F32 && !o->wide)) {
        plait_orthogonal_destroy(o);
        errno = ENOMEM;
        return NULL;
    }
    return o;
}

void plait_orthogonal_destroy(struct plait_orthogonal *o)
{
    const struct plait_ops *ops;
    struct plait_device *dev;
    int saved = errno;

    if (!o)
        return;
    ops = o->mesh->ops;
    dev = o->mesh->dev;
    ops->free(dev, o->next);
    ops->free(dev, o->gram);
    ops->free(dev, o->poly);
    ops->free(dev, o->wide);
    ops->free(dev, o->squares);
    free(o);
    errno = saved;
}

/* x[n] *= s */
static int scale(struct plait_orthogonal *o, void *x, float s, size_t n)
{
    return o->mesh->ops->scale(
        o->mesh->q,
        &(struct plait_scale){.type = o->type, .x = x, .s = s, .n = n});
}

/* x[n] += y[n] */
static int add(struct plait_orthogonal *o, void *x, const void *y, size_t n)
{
    return o->mesh->ops->add(
        o->mesh->q,
        &(struct plait_add){.type = o->type, .out = x, .a = x, .b = y, .n = n});
}

/* -- the norm ------------------------------------------------------------ */

/* *squares += x[n]^2; other types are converted, because the op only takes
 * fp32. */
static int sum_squares(struct plait_orthogonal *o, const void *x, size_t n)
{
    const struct plait_ops *ops = o->mesh->ops;
    struct plait_queue *q = o->mesh->q;
    struct plait_floats list = {x, n};

    if (o->type == PLAIT_F32)
        return ops->sum_squares(q, o->squares, &list, 1);
    for (size_t at = 0; at < n; at += list.n) {
        const char *from = (const char *)x + at * plait_dtype_size(o->type);

        list = (struct plait_floats){o->wide, n - at < CHUNK ? n - at : CHUNK};
        if (ops->cast(q, &(struct plait_cast){.to = PLAIT_F32,
                                              .from = o->type,
                                              .dst = o->wide,
                                              .src = from,
                                              .n = list.n}) < 0 ||
            ops->sum_squares(q, o->squares, &list, 1) < 0)
            return -1;
    }
    return 0;
}

static int normalize(struct plait_orthogonal *o, void *x, float factor,
                     size_t n)
{
    const struct plait_ops *ops = o->mesh->ops;
    struct plait_queue *q = o->mesh->q;
    double sum;

    if (ops->fill_zero(q, o->squares, sizeof(*o->squares)) < 0 ||
        sum_squares(o, x, n) < 0 ||
        ops->to_host(q, &sum, o->squares, sizeof(sum)) < 0)
        return -1;
    return scale(o, x, (float)(1 / fmax(sqrt(sum), LEAST_NORM * factor)), n);
}

/* -- products ------------------------------------------------------------ */

/* The right operand of a product. */
struct right {
    const void *x; /* [rows, cols] */
    size_t rows, cols;
};

static struct plait_weight *weight_of(const struct plait_orthogonal *o,
                                      struct right b)
{
    return o->mesh->ops->weight_create(
        o->mesh->dev,
        &(struct plait_weight_data){o->type, b.rows, b.cols, b.x});
}

/* out[n,rows] = a[n,cols] . b[rows,cols]^T */
static int multiply_transposed(struct plait_orthogonal *o, void *out,
                               const void *a, struct right b, size_t n)
{
    const struct plait_ops *ops = o->mesh->ops;
    struct plait_linear l = {
        .N = n, .inp.x = a, .w = weight_of(o, b), .out = out};
    int rc;

    if (!l.w)
        return -1;
    rc = ops->linear_forward(o->mesh->q, &l);
    ops->weight_destroy(l.w);
    return rc;
}

/* out[n,cols] += a[n,rows] . b[rows,cols] */
static int multiply_add(struct plait_orthogonal *o, void *out, const void *a,
                        struct right b, size_t n)
{
    const struct plait_ops *ops = o->mesh->ops;
    struct plait_linear_dinp l = {.N = n,
                                  .dout.x = a,
                                  .w = weight_of(o, b),
                                  .dinp = out,
                                  .accumulate = 1};
    int rc;

    if (!l.w)
        return -1;
    rc = ops->linear_backward_input(o->mesh->q, &l);
    ops->weight_destroy(l.w);
    return rc;
}

/* The product of x and its transpose that is [side, side], side being the
 * shorter one. */
static int make_gram(struct plait_orthogonal *o, const void *x, size_t rows,
                     size_t cols)
{
    const struct plait_ops *ops = o->mesh->ops;
    float *gram = o->type == PLAIT_F32 ? o->gram : o->wide;
    struct plait_linear_dw l = {.type = o->type,
                                .N = rows,
                                .O = cols,
                                .C = cols,
                                .dout.x = x,
                                .inp.x = x,
                                .dw = gram};

    if (rows <= cols)
        return multiply_transposed(o, o->gram, x, (struct right){x, rows, cols},
                                   rows);
    if (ops->linear_backward_weight(o->mesh->q, &l) < 0)
        return -1;
    if (o->type == PLAIT_F32)
        return 0;
    return ops->cast(o->mesh->q, &(struct plait_cast){.to = o->type,
                                                      .from = PLAIT_F32,
                                                      .dst = o->gram,
                                                      .src = gram,
                                                      .n = cols * cols});
}

/* poly = b A + c A^2; A is symmetric. */
static int make_polynomial(struct plait_orthogonal *o, size_t side)
{
    size_t n = side * side;

    if (multiply_transposed(o, o->poly, o->gram,
                            (struct right){o->gram, side, side}, side) < 0 ||
        scale(o, o->poly, coefficient[2], n) < 0 ||
        scale(o, o->gram, coefficient[1], n) < 0)
        return -1;
    return add(o, o->poly, o->gram, n);
}

/* next = a x + poly x, or a x + x poly; may overwrite x. */
static int make_next(struct plait_orthogonal *o, void *x, void *next,
                     size_t rows, size_t cols)
{
    size_t n = rows * cols, bytes = n * plait_dtype_size(o->type);

    if (rows <= cols)
        return o->mesh->ops->copy(o->mesh->q, next, x, bytes) < 0 ||
                       scale(o, next, coefficient[0], n) < 0 ||
                       multiply_add(o, next, o->poly,
                                    (struct right){x, rows, cols}, rows) < 0
                   ? -1
                   : 0;
    if (multiply_transposed(o, next, x, (struct right){o->poly, cols, cols},
                            rows) < 0 ||
        scale(o, x, coefficient[0], n) < 0)
        return -1;
    return add(o, next, x, n);
}

int plait_orthogonalize(struct plait_orthogonal *o, void *x, float factor,
                        size_t rows, size_t cols)
{
    size_t side = rows < cols ? rows : cols;
    void *now = x, *next = o->next, *swap;

    if (normalize(o, x, factor, rows * cols) < 0)
        return -1;
    for (int i = 0; i < ITERATIONS; i++) {
        if (make_gram(o, now, rows, cols) < 0 || make_polynomial(o, side) < 0 ||
            make_next(o, now, next, rows, cols) < 0)
            return -1;
        swap = now;
        now = next;
        next = swap;
    }
    if (now == x)
        return 0;
    return o->mesh->ops->copy(o->mesh->q, x, now,
                              rows * cols * plait_dtype_size(o->type));
}
