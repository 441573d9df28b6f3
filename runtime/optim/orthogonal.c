/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/orthogonal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/linear.h"

#define ITERATIONS PLAIT_ORTHOGONAL_ITERATIONS
#define SAFETY 1.01 /* of polar-express */
#define LEAST_NORM 1e-7
#define CHUNK ((size_t)1 << 20) /* elements converted to fp32 at a time */

static const double quintic[3] = {3.4445, -4.7750, 2.0315};

static const double polar_express[ITERATIONS][3] = {
    {8.28721201814563, -23.595886519098837, 17.300387312530933},
    {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
    {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
    {3.3184196573706015, -2.488488024314874, 0.51004894012372},
    {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
};

struct plait_orthogonal {
    struct plait_mesh *mesh;
    enum plait_dtype type;
    enum plait_muon_coefficients kind;
    float coefficient[ITERATIONS][3];
    /* Device memory: the next X; A = X X^T; b A + c A^2. */
    void *next, *gram, *poly;
    float *wide;     /* NULL if the type is fp32 */
    double *squares; /* device: [most] of each matrix */
    double *sums;    /* [most] the same */
};

const double *plait_orthogonal_polynomial(enum plait_muon_coefficients kind,
                                          int i)
{
    return kind == PLAIT_MUON_POLAR_EXPRESS ? polar_express[i] : quintic;
}

static void set_coefficients(struct plait_orthogonal *o,
                             enum plait_muon_coefficients kind)
{
    double by = kind == PLAIT_MUON_POLAR_EXPRESS ? 1 / SAFETY : 1;

    for (int i = 0; i < ITERATIONS; i++) {
        const double *p = plait_orthogonal_polynomial(kind, i);

        for (int k = 0; k < 3; k++)
            o->coefficient[i][k] = (float)(p[k] * pow(by, 2 * k + 1));
    }
}

static void *allocate(struct plait_orthogonal *o, size_t elements, size_t size)
{
    return o->mesh->ops->alloc(o->mesh->dev, (elements + 1) * size);
}

struct plait_orthogonal *
plait_orthogonal_create(struct plait_mesh *mesh, enum plait_dtype type,
                        enum plait_muon_coefficients kind, size_t most,
                        size_t largest, size_t side)
{
    struct plait_orthogonal *o = calloc(1, sizeof(*o));
    size_t size = plait_dtype_size(type);
    size_t wide = side * side > CHUNK ? side * side : CHUNK;

    if (!o)
        return NULL;
    o->mesh = mesh;
    o->type = type;
    o->kind = kind;
    set_coefficients(o, kind);
    o->next = allocate(o, largest, size);
    o->gram = allocate(o, side * side, size);
    o->poly = allocate(o, side * side, size);
    o->squares = allocate(o, most, sizeof(*o->squares));
    o->sums = calloc(most + 1, sizeof(*o->sums));
    if (type != PLAIT_F32)
        o->wide = allocate(o, wide, sizeof(*o->wide));
    if (!o->next || !o->gram || !o->poly || !o->squares || !o->sums ||
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
    free(o->sums);
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

/* -- norms ------------------------------------------------------------ */

/* *squares += x[n]^2; other types are converted, because the op only takes
 * fp32. */
static int sum_squares(struct plait_orthogonal *o, double *squares,
                       const void *x, size_t n)
{
    const struct plait_ops *ops = o->mesh->ops;
    struct plait_queue *q = o->mesh->q;
    struct plait_floats list = {x, n};

    if (o->type == PLAIT_F32)
        return ops->sum_squares(q, squares, &list, 1);
    for (size_t at = 0; at < n; at += list.n) {
        const char *from = (const char *)x + at * plait_dtype_size(o->type);

        list = (struct plait_floats){o->wide, n - at < CHUNK ? n - at : CHUNK};
        if (ops->cast(q, &(struct plait_cast){.to = PLAIT_F32,
                                              .from = o->type,
                                              .dst = o->wide,
                                              .src = from,
                                              .n = list.n}) < 0 ||
            ops->sum_squares(q, squares, &list, 1) < 0)
            return -1;
    }
    return 0;
}

/* What a matrix whose squares add up to `sum` is divided by. */
static double divisor_of(const struct plait_orthogonal *o, double sum,
                         float factor)
{
    if (o->kind == PLAIT_MUON_POLAR_EXPRESS)
        return SAFETY * sqrt(sum) + LEAST_NORM * factor;
    return fmax(sqrt(sum), LEAST_NORM * factor);
}

/* x [count, n]: `count` matrices, each divided by its norm. The host waits
 * once. */
static int normalize(struct plait_orthogonal *o, char *x, float factor,
                     size_t count, size_t n)
{
    const struct plait_ops *ops = o->mesh->ops;
    struct plait_queue *q = o->mesh->q;
    size_t bytes = n * plait_dtype_size(o->type);

    if (ops->fill_zero(q, o->squares, count * sizeof(*o->squares)) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (sum_squares(o, o->squares + i, x + i * bytes, n) < 0)
            return -1;
    if (ops->to_host(q, o->sums, o->squares, count * sizeof(*o->sums)) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (scale(o, x + i * bytes,
                  (float)(1 / divisor_of(o, o->sums[i], factor)), n) < 0)
            return -1;
    return 0;
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

/* poly = b A + c A^2 with (a, b, c) = p; A is symmetric. */
static int make_polynomial(struct plait_orthogonal *o, const float p[3],
                           size_t side)
{
    size_t n = side * side;

    if (multiply_transposed(o, o->poly, o->gram,
                            (struct right){o->gram, side, side}, side) < 0 ||
        scale(o, o->poly, p[2], n) < 0 || scale(o, o->gram, p[1], n) < 0)
        return -1;
    return add(o, o->poly, o->gram, n);
}

/* next = a x + poly x, or a x + x poly; may overwrite x. */
static int make_next(struct plait_orthogonal *o, float a, void *x, void *next,
                     size_t rows, size_t cols)
{
    size_t n = rows * cols, bytes = n * plait_dtype_size(o->type);

    if (rows <= cols)
        return o->mesh->ops->copy(o->mesh->q, next, x, bytes) < 0 ||
                       scale(o, next, a, n) < 0 ||
                       multiply_add(o, next, o->poly,
                                    (struct right){x, rows, cols}, rows) < 0
                   ? -1
                   : 0;
    if (multiply_transposed(o, next, x, (struct right){o->poly, cols, cols},
                            rows) < 0 ||
        scale(o, x, a, n) < 0)
        return -1;
    return add(o, next, x, n);
}

/* x [rows, cols], of norm 1 */
static int iterate(struct plait_orthogonal *o, void *x, size_t rows,
                   size_t cols)
{
    size_t side = rows < cols ? rows : cols;
    void *now = x, *next = o->next, *swap;

    for (int i = 0; i < ITERATIONS; i++) {
        const float *p = o->coefficient[i];

        if (make_gram(o, now, rows, cols) < 0 ||
            make_polynomial(o, p, side) < 0 ||
            make_next(o, p[0], now, next, rows, cols) < 0)
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

int plait_orthogonalize(struct plait_orthogonal *o, void *x, float factor,
                        size_t count, size_t rows, size_t cols)
{
    size_t bytes = rows * cols * plait_dtype_size(o->type);

    if (normalize(o, x, factor, count, rows * cols) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (iterate(o, (char *)x + i * bytes, rows, cols) < 0)
            return -1;
    return 0;
}
