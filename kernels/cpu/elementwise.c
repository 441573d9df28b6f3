/* SPDX-License-Identifier: Apache-2.0 */
/* Casts, sums, scaling and activations on the CPU, a vector at a time. */
#include <assert.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/vec.h"

enum elementwise {
    OP_ADD,
    OP_ADD_SCALED,
    OP_SCALE,
    OP_SOFTCAP,
    OP_GELU,
    OP_GELU_BACKWARD
};

/* out[i] = op(a[i], b[i], s); b and s where the op has them. */
struct elements {
    void *out;
    const void *a, *b;
    float s;
    size_t n;
};

/* One vector of an elementwise op; `n` lanes of it count. */
INLINE void one_vector(enum elementwise op, enum plait_dtype type,
                       const struct elements *e, size_t i, size_t n)
{
    vec x = vec_load(type, e->a, i, n);

    switch (op) {
    case OP_ADD:
        x = x + vec_load(type, e->b, i, n);
        break;
    case OP_ADD_SCALED:
        x = x + vec_load(type, e->b, i, n) * e->s;
        break;
    case OP_SCALE:
        x = x * e->s;
        break;
    case OP_SOFTCAP:
        x = vec_tanh(x * (1 / e->s)) * e->s;
        break;
    case OP_GELU:
        x = gelu_of(type, x);
        break;
    case OP_GELU_BACKWARD:
        x = x * vec_gelu_slope(vec_load(type, e->b, i, n));
        break;
    }
    vec_store(type, e->out, i, n, x);
}

INLINE void vector_span(enum elementwise op, enum plait_dtype type,
                        const struct elements *shared, size_t from, size_t to)
{
    /* A copy that no store to `out` can change: its members stay in
     * registers. */
    struct elements e = *shared;
    size_t i = from;

    for (; i + VLEN <= to; i += VLEN)
        one_vector(op, type, &e, i, VLEN);
    if (i < to)
        one_vector(op, type, &e, i, to - i);
}

INLINE int elementwise(struct plait_queue *q, enum elementwise op,
                       enum plait_dtype type, struct elements e)
{
#pragma omp parallel num_threads(cpu_threads(q, e.n))
    {
        size_t from, to;

        cpu_span(e.n, omp_get_num_threads(), omp_get_thread_num(), &from, &to);
        if (type == PLAIT_F32)
            vector_span(op, PLAIT_F32, &e, from, to);
        else if (type == PLAIT_BF16_T)
            vector_span(op, PLAIT_BF16_T, &e, from, to);
        else
            vector_span(op, PLAIT_FP16_T, &e, from, to);
    }
    return 0;
}

static int add(struct plait_queue *q, const struct plait_add *a)
{
    return elementwise(
        q, OP_ADD, a->type,
        (struct elements){.out = a->out, .a = a->a, .b = a->b, .n = a->n});
}

static int add_scaled(struct plait_queue *q, const struct plait_add *a)
{
    return elementwise(
        q, OP_ADD_SCALED, a->type,
        (struct elements){
            .out = a->out, .a = a->a, .b = a->b, .s = a->s, .n = a->n});
}

static int scale(struct plait_queue *q, const struct plait_scale *s)
{
    return elementwise(
        q, OP_SCALE, s->type,
        (struct elements){.out = s->x, .a = s->x, .s = s->s, .n = s->n});
}

static int softcap(struct plait_queue *q, const struct plait_scale *s)
{
    return elementwise(
        q, OP_SOFTCAP, s->type,
        (struct elements){.out = s->x, .a = s->x, .s = s->s, .n = s->n});
}

static int gelu_forward(struct plait_queue *q,
                        const struct plait_gelu_forward *g)
{
    return elementwise(
        q, OP_GELU, g->type,
        (struct elements){.out = g->out, .a = g->inp, .n = g->n});
}

static int gelu_backward(struct plait_queue *q,
                         const struct plait_gelu_backward *g)
{
    return elementwise(
        q, OP_GELU_BACKWARD, g->type,
        (struct elements){
            .out = g->dinp, .a = g->dout, .b = g->inp, .n = g->n});
}

INLINE void cast_span(enum plait_dtype to, void *dst, enum plait_dtype from,
                      const void *src, size_t i, size_t end)
{
    for (; i + VLEN <= end; i += VLEN)
        vec_store(to, dst, i, VLEN, vec_load(from, src, i, VLEN));
    if (i < end)
        vec_store(to, dst, i, end - i, vec_load(from, src, i, end - i));
}

INLINE void cast_from(enum plait_dtype to, void *dst, enum plait_dtype from,
                      const void *src, size_t i, size_t end)
{
    if (from == PLAIT_F32)
        cast_span(to, dst, PLAIT_F32, src, i, end);
    else if (from == PLAIT_BF16_T)
        cast_span(to, dst, PLAIT_BF16_T, src, i, end);
    else
        cast_span(to, dst, PLAIT_FP16_T, src, i, end);
}

/* Elements i .. end - 1. */
static void cast_elements(enum plait_dtype to, void *dst, enum plait_dtype from,
                          const void *src, size_t i, size_t end)
{
    assert(to != PLAIT_I32 && from != PLAIT_I32);
    if (to == PLAIT_F32)
        cast_from(PLAIT_F32, dst, from, src, i, end);
    else if (to == PLAIT_BF16_T)
        cast_from(PLAIT_BF16_T, dst, from, src, i, end);
    else
        cast_from(PLAIT_FP16_T, dst, from, src, i, end);
}

static int cast(struct plait_queue *q, const struct plait_cast *c)
{
#pragma omp parallel num_threads(cpu_threads(q, c->n))
    {
        size_t i, end;

        cpu_span(c->n, omp_get_num_threads(), omp_get_thread_num(), &i, &end);
        cast_elements(c->to, c->dst, c->from, c->src, i, end);
    }
    return 0;
}

INLINE void add_span(float *dst, enum plait_dtype from, const void *src,
                     size_t count)
{
    for (size_t i = 0; i < count; i += VLEN) {
        size_t n = min(VLEN, count - i);

        vec_store(PLAIT_F32, dst, i, n,
                  vec_load(PLAIT_F32, dst, i, n) + vec_load(from, src, i, n));
    }
}

static void cast_row(const struct plait_cast_2d *c, size_t row)
{
    char *dst = (char *)c->dst + row * c->dst_stride * plait_dtype_size(c->to);
    const char *src =
        (const char *)c->src + row * c->src_stride * plait_dtype_size(c->from);
    float *sums = (float *)(void *)dst;

    if (!c->accumulate)
        cast_elements(c->to, dst, c->from, src, 0, c->cols);
    else if (c->from == PLAIT_F32)
        add_span(sums, PLAIT_F32, src, c->cols);
    else if (c->from == PLAIT_BF16_T)
        add_span(sums, PLAIT_BF16_T, src, c->cols);
    else
        add_span(sums, PLAIT_FP16_T, src, c->cols);
}

static int cast_2d(struct plait_queue *q, const struct plait_cast_2d *c)
{
    int threads = cpu_threads(q, c->rows * c->cols);

    assert(!c->accumulate || c->to == PLAIT_F32);
    assert(c->dst_stride >= c->cols && c->src_stride >= c->cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < c->rows; i++)
        cast_row(c, i);
    return 0;
}

/* -- rows -------------------------------------------------------------- */

#define COLUMNS 512 /* columns whose fp32 sums fit L1 */

/* Sums columns from .. from + n - 1 of all rows, in row order, so that the
 * result does not depend on the number of threads. */
INLINE void column_sums(enum plait_dtype type,
                        const struct plait_bias_backward *b, size_t from,
                        size_t n)
{
    const void *dout = b->dout;
    size_t N = b->N, O = b->O;
    float sums[COLUMNS] = {0};

    for (size_t i = 0; i < N; i++)
        for (size_t o = 0; o < n; o += VLEN) {
            size_t lanes = n - o < VLEN ? n - o : VLEN;

            vec_store(PLAIT_F32, sums, o, VLEN,
                      vec_load(PLAIT_F32, sums, o, VLEN) +
                          vec_load(type, dout, i * O + from + o, lanes));
        }
    for (size_t o = 0; o < n; o++)
        b->dbias[from + o] += sums[o];
}

static int bias_backward(struct plait_queue *q,
                         const struct plait_bias_backward *b)
{
    size_t O = b->O, width = O / (size_t)q->dev->threads / 64 * 64;
    int threads = cpu_threads(q, b->N * O);

    if (width > COLUMNS)
        width = COLUMNS;
    if (width < 64)
        width = 64;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t from = 0; from < O; from += width) {
        size_t n = O - from < width ? O - from : width;

        if (b->type == PLAIT_F32)
            column_sums(PLAIT_F32, b, from, n);
        else if (b->type == PLAIT_BF16_T)
            column_sums(PLAIT_BF16_T, b, from, n);
        else
            column_sums(PLAIT_FP16_T, b, from, n);
    }
    return 0;
}

/* What is left of a gate and of what it lets through. */
struct gate_vec {
    vec gate, up, sigmoid;
};

INLINE struct gate_vec clamp(vec gate, vec up)
{
    vec most = vec_set(PLAIT_GLU_LIMIT);
    struct gate_vec y = {.gate = vec_select(gate > most, most, gate),
                         .up = vec_select(up > most, most, up)};

    y.up = vec_select(y.up < -most, -most, y.up);
    y.sigmoid = vec_sigmoid(PLAIT_GLU_SLOPE * y.gate);
    return y;
}

/* kind: a constant in all callers, as the type. */
INLINE void swiglu_forward_row(enum plait_dtype type, enum plait_glu kind,
                               const struct plait_swiglu_forward *s, size_t i)
{
    const void *inp = s->inp;
    void *out = s->out;
    size_t F = s->F;

    for (size_t f = 0; f < F; f += VLEN) {
        size_t n = F - f < VLEN ? F - f : VLEN;
        vec gate = vec_load(type, inp, i * 2 * F + f, n);
        vec up = vec_load(type, inp, i * 2 * F + F + f, n);
        vec act;

        if (kind == PLAIT_GLU_CLAMPED) {
            struct gate_vec y = clamp(gate, up);

            act = y.gate * y.sigmoid;
            up = y.up + 1.0f;
        } else {
            act = kind == PLAIT_GLU_GELU ? gelu_of(type, gate)
                                         : gate * vec_sigmoid(gate);
        }
        vec_store(type, out, i * F + f, n, act * up);
    }
}

/* Gradients of the gate and of what it lets through. */
INLINE void clamped_backward(vec *gate, vec *up, vec d)
{
    struct gate_vec y = clamp(*gate, *up);
    vec s = y.sigmoid, none = vec_set(0);
    vec slope =
        (y.up + 1.0f) * s * (1.0f + PLAIT_GLU_SLOPE * y.gate * (1.0f - s));

    *gate = d * vec_select(*gate > y.gate, none, slope);
    *up = d * vec_select(*up > y.up, none,
                         vec_select(*up < y.up, none, y.gate * s));
}

INLINE void swiglu_backward_row(enum plait_dtype type, enum plait_glu kind,
                                const struct plait_swiglu_backward *g, size_t i)
{
    const void *inp = g->inp, *dout = g->dout;
    void *dinp = g->dinp;
    size_t F = g->F;

    for (size_t f = 0; f < F; f += VLEN) {
        size_t n = F - f < VLEN ? F - f : VLEN, at = i * 2 * F + f;
        vec gate = vec_load(type, inp, at, n);
        vec up = vec_load(type, inp, at + F, n);
        vec d = vec_load(type, dout, i * F + f, n);

        if (kind == PLAIT_GLU_CLAMPED) {
            clamped_backward(&gate, &up, d);
            vec_store(type, dinp, at, n, gate);
            vec_store(type, dinp, at + F, n, up);
        } else if (kind == PLAIT_GLU_GELU) {
            vec_store(type, dinp, at, n, d * up * gelu_slope_of(type, gate));
            vec_store(type, dinp, at + F, n, d * gelu_of(type, gate));
        } else {
            vec s = vec_sigmoid(gate);

            vec_store(type, dinp, at, n,
                      d * up * s * (1.0f + gate * (1.0f - s)));
            vec_store(type, dinp, at + F, n, d * gate * s);
        }
    }
}

/* Of one row, whatever the type. */
INLINE void forward_row(enum plait_glu kind,
                        const struct plait_swiglu_forward *s, size_t i)
{
    if (s->type == PLAIT_F32)
        swiglu_forward_row(PLAIT_F32, kind, s, i);
    else if (s->type == PLAIT_BF16_T)
        swiglu_forward_row(PLAIT_BF16_T, kind, s, i);
    else
        swiglu_forward_row(PLAIT_FP16_T, kind, s, i);
}

INLINE void backward_row(enum plait_glu kind,
                         const struct plait_swiglu_backward *s, size_t i)
{
    if (s->type == PLAIT_F32)
        swiglu_backward_row(PLAIT_F32, kind, s, i);
    else if (s->type == PLAIT_BF16_T)
        swiglu_backward_row(PLAIT_BF16_T, kind, s, i);
    else
        swiglu_backward_row(PLAIT_FP16_T, kind, s, i);
}

static int swiglu_forward(struct plait_queue *q,
                          const struct plait_swiglu_forward *s)
{
    int threads = cpu_threads(q, s->N * s->F);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < s->N; i++) {
        if (s->kind == PLAIT_GLU_CLAMPED)
            forward_row(PLAIT_GLU_CLAMPED, s, i);
        else if (s->kind == PLAIT_GLU_GELU)
            forward_row(PLAIT_GLU_GELU, s, i);
        else
            forward_row(PLAIT_GLU_SILU, s, i);
    }
    return CPU_NAME(cpu_fp8_amax)(q, s->amax, s->out, s->N * s->F);
}

static int swiglu_backward(struct plait_queue *q,
                           const struct plait_swiglu_backward *s)
{
    int threads = cpu_threads(q, s->N * s->F);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < s->N; i++) {
        if (s->kind == PLAIT_GLU_CLAMPED)
            backward_row(PLAIT_GLU_CLAMPED, s, i);
        else if (s->kind == PLAIT_GLU_GELU)
            backward_row(PLAIT_GLU_GELU, s, i);
        else
            backward_row(PLAIT_GLU_SILU, s, i);
    }
    return CPU_NAME(cpu_fp8_amax)(q, s->amax, s->dinp, 2 * s->N * s->F);
}

/* -- moving ------------------------------------------------------------ */

static int copy(struct plait_queue *q, void *dst, const void *src, size_t bytes)
{
    char *to = dst;
    const char *from = src;

    if (bytes == 0 || dst == src)
        return 0;
#pragma omp parallel num_threads(cpu_threads(q, bytes / 4))
    {
        size_t i, end;

        cpu_span(bytes, omp_get_num_threads(), omp_get_thread_num(), &i, &end);
        memcpy(to + i, from + i, end - i);
    }
    return 0;
}

static int fill_zero(struct plait_queue *q, void *dst, size_t bytes)
{
    char *to = dst;

    if (bytes == 0)
        return 0;
#pragma omp parallel num_threads(cpu_threads(q, bytes / 4))
    {
        size_t i, end;

        cpu_span(bytes, omp_get_num_threads(), omp_get_thread_num(), &i, &end);
        memset(to + i, 0, end - i);
    }
    return 0;
}

static int copy_2d(struct plait_queue *q, const struct plait_copy_2d *c)
{
    size_t size = plait_dtype_size(c->type);
    const char *from = c->src;
    char *to = c->dst;
    int threads = cpu_threads(q, c->rows * c->cols);

    assert(c->dst_stride >= c->cols && c->src_stride >= c->cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < c->rows; i++)
        memcpy(to + i * c->dst_stride * size, from + i * c->src_stride * size,
               c->cols * size);
    return 0;
}

void CPU_NAME(cpu_fill_elementwise)(struct plait_ops *ops)
{
    ops->add = add;
    ops->add_scaled = add_scaled;
    ops->scale = scale;
    ops->softcap = softcap;
    ops->cast = cast;
    ops->cast_2d = cast_2d;
    ops->gelu_forward = gelu_forward;
    ops->gelu_backward = gelu_backward;
    ops->swiglu_forward = swiglu_forward;
    ops->swiglu_backward = swiglu_backward;
    ops->bias_backward = bias_backward;
    ops->copy = copy;
    ops->copy_2d = copy_2d;
    ops->to_device = copy;
    ops->to_host = copy;
    ops->copy_out = copy;
    ops->copy_in = copy;
    ops->fill_zero = fill_zero;
}
