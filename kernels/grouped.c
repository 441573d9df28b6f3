/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/host.h"

/* Grouped products on the CPU: one call of the plain product for each group.
 * The row counts can be read because device memory is the host's here. */

static const struct plait_ops *table_of(const struct plait_queue *q)
{
    return q->cpu != NULL ? plait_ops_cpu() : plait_ops_ref();
}

/* The address of element n of the array p; NULL stays NULL. */
static void *element(enum plait_dtype type, void *p, size_t n)
{
    return p != NULL ? (char *)p + n * plait_dtype_size(type) : NULL;
}

static const void *const_element(enum plait_dtype type, const void *p, size_t n)
{
    return p != NULL ? (const char *)p + n * plait_dtype_size(type) : NULL;
}

/* The weight of group i. */
static struct plait_weight weight_of(const struct plait_weight *w,
                                     const struct plait_groups *g, int i)
{
    struct plait_weight one = *w;

    one.data = const_element(w->type, w->data, (size_t)i * g->stride);
    return one;
}

int host_grouped_forward(struct plait_queue *q, const struct plait_groups *g,
                         void *out, void *pre, const void *inp,
                         struct plait_weight *w, const void *bias,
                         enum plait_activation act)
{
    enum plait_dtype t = w->type;
    size_t row = 0, rest;

    if (act == PLAIT_ACT_NONE)
        pre = NULL;
    for (int i = 0; i < g->n; i++) {
        struct plait_weight one = weight_of(w, g, i);
        size_t n = (size_t)g->count[i];

        if (n > 0 &&
            table_of(q)->linear_forward(
                q, element(t, out, row * w->O), element(t, pre, row * w->O),
                const_element(t, inp, row * w->C), &one,
                const_element(t, bias, (size_t)i * g->stride), act, n) < 0)
            return -1;
        row += n;
    }
    rest = (g->rows - row) * w->O * plait_dtype_size(t);
    memset(element(t, out, row * w->O), 0, rest);
    if (pre != NULL)
        memset(element(t, pre, row * w->O), 0, rest);
    return 0;
}

int host_grouped_backward_input(struct plait_queue *q,
                                const struct plait_groups *g, void *dinp,
                                const void *dout, struct plait_weight *w,
                                enum plait_activation act, const void *pre)
{
    enum plait_dtype t = w->type;
    size_t row = 0;

    for (int i = 0; i < g->n; i++) {
        struct plait_weight one = weight_of(w, g, i);
        size_t n = (size_t)g->count[i];

        if (n > 0 && table_of(q)->linear_backward_input(
                         q, element(t, dinp, row * w->C),
                         const_element(t, dout, row * w->O), &one, act,
                         const_element(t, pre, row * w->C), 0, n) < 0)
            return -1;
        row += n;
    }
    memset(element(t, dinp, row * w->C), 0,
           (g->rows - row) * w->C * plait_dtype_size(t));
    return 0;
}

int host_grouped_backward_weight(struct plait_queue *q, enum plait_dtype type,
                                 const struct plait_groups *g, float *dw,
                                 float *dbias, const void *dout,
                                 const void *inp, int accumulate, size_t O,
                                 size_t C)
{
    size_t row = 0;

    for (int i = 0; i < g->n; i++) {
        size_t n = (size_t)g->count[i], at = (size_t)i * g->stride;

        if (table_of(q)->linear_backward_weight(
                q, type, dw + at, dbias != NULL ? dbias + at : NULL,
                const_element(type, dout, row * O),
                const_element(type, inp, row * C), accumulate, n, O, C) < 0)
            return -1;
        row += n;
    }
    return 0;
}
