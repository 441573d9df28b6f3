/* SPDX-License-Identifier: Apache-2.0 */
/* Casts, sums and activation functions, written as their formulas. */
#include <math.h>

#include "kernels/dropout.h"
#include "kernels/ref/ref.h"

int ref_cast(struct plait_queue *q, const struct plait_cast *c)
{
    (void)q;
    for (size_t i = 0; i < c->n; i++)
        ref_put(c->to, c->dst, i, ref_get(c->from, c->src, i));
    return 0;
}

int ref_cast_2d(struct plait_queue *q, const struct plait_cast_2d *c)
{
    (void)q;
    for (size_t i = 0; i < c->rows; i++)
        for (size_t j = 0; j < c->cols; j++) {
            size_t to = i * c->dst_stride + j;
            double x = ref_get(c->from, c->src, i * c->src_stride + j);

            if (c->accumulate)
                x += ref_get(c->to, c->dst, to);
            ref_put(c->to, c->dst, to, x);
        }
    return 0;
}

int ref_e5m2_encode(struct plait_queue *q, const struct plait_e5m2 *c)
{
    (void)q;
    for (size_t i = 0; i < c->n; i++) {
        float x = c->x[i];

        c->codes[i] =
            plait_fp8_of_f32(isfinite(x) ? c->s * x : NAN, PLAIT_E5M2);
    }
    return 0;
}

int ref_e5m2_decode(struct plait_queue *q, const struct plait_e5m2 *c)
{
    float inverse = 1 / c->s;

    (void)q;
    for (size_t i = 0; i < c->n; i++) {
        float x = plait_f32_of_fp8(c->codes[i], PLAIT_E5M2) * inverse;

        c->x[i] = c->accumulate ? c->x[i] + x : x;
    }
    return 0;
}

int ref_copy_heads(struct plait_queue *q, const struct plait_copy_heads *c)
{
    (void)q;
    for (size_t i = 0; i < c->rows; i++)
        for (size_t h = 0; h < c->heads; h++)
            for (size_t j = 0; j < c->cols; j++) {
                size_t from = i * c->src_stride + h * c->src_head + j;

                ref_put(c->type, c->dst,
                        i * c->dst_stride + h * c->dst_head + j,
                        c->src != NULL ? ref_get(c->type, c->src, from) : 0);
            }
    return 0;
}

int ref_sum_heads(struct plait_queue *q, const struct plait_sum_heads *s)
{
    (void)q;
    for (size_t i = 0; i < s->rows; i++)
        for (size_t j = 0; j < s->cols; j++) {
            size_t from = i * s->src_stride + j;
            double sum = 0;

            for (size_t h = 0; h < s->heads; h++)
                sum += ref_get(s->type, s->src, from + h * s->src_head);
            ref_put(s->type, s->dst, i * s->cols + j, sum);
        }
    return 0;
}

int ref_add(struct plait_queue *q, const struct plait_add *a)
{
    (void)q;
    for (size_t i = 0; i < a->n; i++)
        ref_put(a->type, a->out, i,
                ref_get(a->type, a->a, i) + ref_get(a->type, a->b, i));
    return 0;
}

int ref_add_scaled(struct plait_queue *q, const struct plait_add *a)
{
    (void)q;
    for (size_t i = 0; i < a->n; i++)
        ref_put(a->type, a->out, i,
                ref_get(a->type, a->a, i) + a->s * ref_get(a->type, a->b, i));
    return 0;
}

int ref_scale(struct plait_queue *q, const struct plait_scale *s)
{
    (void)q;
    for (size_t i = 0; i < s->n; i++)
        ref_put(s->type, s->x, i, ref_get(s->type, s->x, i) * s->s);
    return 0;
}

int ref_softcap(struct plait_queue *q, const struct plait_scale *s)
{
    (void)q;
    for (size_t i = 0; i < s->n; i++)
        ref_put(s->type, s->x, i,
                s->s * tanh(ref_get(s->type, s->x, i) / s->s));
    return 0;
}

int ref_dropout(struct plait_queue *q, const struct plait_dropout *d)
{
    (void)q;
    for (size_t r = 0; r < d->N; r++) {
        struct plait_drop_row row = plait_drop_row_of(d, r);

        for (size_t c = 0; c < d->C; c++) {
            float by = plait_drop_factor(&d->drops, row, (uint32_t)c);
            size_t at = r * d->C + c;

            ref_put(d->type, d->out, at, by * ref_get(d->type, d->inp, at));
        }
    }
    return 0;
}

int ref_bias_backward(struct plait_queue *q,
                      const struct plait_bias_backward *b)
{
    (void)q;
    for (size_t o = 0; o < b->O; o++) {
        double sum = b->dbias[o];

        for (size_t i = 0; i < b->N; i++)
            sum += ref_get(b->type, b->dout, i * b->O + o);
        b->dbias[o] = (float)sum;
    }
    return 0;
}

int ref_sum_squares(struct plait_queue *q, double *result,
                    const struct plait_floats *lists, int n)
{
    double sum = 0;

    (void)q;
    for (const struct plait_floats *l = lists; l < lists + n; l++)
        for (size_t i = 0; i < l->n; i++)
            sum += (double)l->x[i] * l->x[i];
    *result += sum;
    return 0;
}

/* (1 + tanh(u)) / 2 with the u of Hendrycks and Gimpel, "Gaussian error linear
 * units", the tanh form. Far below 0 the sum of 1 and tanh(u) would have no
 * digits left. */
static double gelu_share(double x)
{
    return 1 / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double ref_gelu(double x)
{
    return x * gelu_share(x);
}

double ref_gelu_slope(double x)
{
    double s = gelu_share(x);

    return s + x * s * gelu_share(-x) * 2 * sqrt(2 / M_PI) *
                   (1 + 3 * 0.044715 * x * x);
}

int ref_gelu_forward(struct plait_queue *q, const struct plait_gelu_forward *g)
{
    (void)q;
    for (size_t i = 0; i < g->n; i++)
        ref_put(g->type, g->out, i, ref_gelu(ref_get(g->type, g->inp, i)));
    return 0;
}

int ref_gelu_backward(struct plait_queue *q,
                      const struct plait_gelu_backward *g)
{
    (void)q;
    for (size_t i = 0; i < g->n; i++)
        ref_put(g->type, g->dinp, i,
                ref_get(g->type, g->dout, i) *
                    ref_gelu_slope(ref_get(g->type, g->inp, i)));
    return 0;
}

/* A gated number and its two derivatives. */
struct gated {
    double out, by_gate, by_up;
};

static struct gated clamp(double gate, double up)
{
    double most = PLAIT_GLU_LIMIT, g = gate > most ? most : gate;
    double u = up > most ? most : up < -most ? -most : up;
    double s = 1 / (1 + exp(-PLAIT_GLU_SLOPE * g));

    return (struct gated){
        .out = g * s * (u + 1),
        .by_gate =
            gate > most ? 0 : (u + 1) * s * (1 + PLAIT_GLU_SLOPE * g * (1 - s)),
        .by_up = up > most || up < -most ? 0 : g * s};
}

static struct gated gate_of(enum plait_glu kind, double gate, double up)
{
    double s = 1 / (1 + exp(-gate));

    if (kind == PLAIT_GLU_CLAMPED)
        return clamp(gate, up);
    if (kind == PLAIT_GLU_GELU)
        return (struct gated){ref_gelu(gate) * up, up * ref_gelu_slope(gate),
                              ref_gelu(gate)};
    return (struct gated){gate * s * up, up * s * (1 + gate * (1 - s)),
                          gate * s};
}

int ref_swiglu_forward(struct plait_queue *q,
                       const struct plait_swiglu_forward *s)
{
    size_t F = s->F;

    for (size_t i = 0; i < s->N; i++) {
        for (size_t f = 0; f < F; f++) {
            double gate = ref_get(s->type, s->inp, i * 2 * F + f);
            double up = ref_get(s->type, s->inp, i * 2 * F + F + f);

            ref_put(s->type, s->out, i * F + f, gate_of(s->kind, gate, up).out);
        }
    }
    return ref_fp8_amax(q, s->amax, s->out, s->N * F);
}

int ref_swiglu_backward(struct plait_queue *q,
                        const struct plait_swiglu_backward *s)
{
    size_t F = s->F;

    for (size_t i = 0; i < s->N; i++) {
        for (size_t f = 0; f < F; f++) {
            size_t g = i * 2 * F + f, u = g + F;
            double gate = ref_get(s->type, s->inp, g);
            double up = ref_get(s->type, s->inp, u);
            double d = ref_get(s->type, s->dout, i * F + f);
            struct gated y = gate_of(s->kind, gate, up);

            ref_put(s->type, s->dinp, g, d * y.by_gate);
            ref_put(s->type, s->dinp, u, d * y.by_up);
        }
    }
    return ref_fp8_amax(q, s->amax, s->dinp, 2 * s->N * F);
}
