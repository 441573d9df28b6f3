/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/host.h"
#include "kernels/linear.h"

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
                         const struct plait_linear *l)
{
    enum plait_dtype t = l->w->type;
    void *pre = l->act == PLAIT_ACT_NONE ? NULL : l->pre;
    size_t row = 0, rest, O = l->w->O;

    for (int i = 0; i < g->n; i++) {
        struct plait_weight w = weight_of(l->w, g, i);
        struct plait_linear one = *l;

        one.N = (size_t)g->count[i];
        one.w = &w;
        one.inp.x = const_element(t, l->inp.x, row * w.C);
        one.bias = const_element(t, l->bias, (size_t)i * g->stride);
        one.pre = element(t, pre, row * O);
        one.out = element(t, l->out, row * O);
        if (one.N > 0 && table_of(q)->linear_forward(q, &one) < 0)
            return -1;
        row += one.N;
    }
    rest = (g->rows - row) * O * plait_dtype_size(t);
    memset(element(t, l->out, row * O), 0, rest);
    if (pre != NULL)
        memset(element(t, pre, row * O), 0, rest);
    return 0;
}

int host_grouped_backward_input(struct plait_queue *q,
                                const struct plait_groups *g,
                                const struct plait_linear_dinp *l)
{
    enum plait_dtype t = l->w->type;
    size_t row = 0, C = l->w->C;

    for (int i = 0; i < g->n; i++) {
        struct plait_weight w = weight_of(l->w, g, i);
        struct plait_linear_dinp one = *l;

        one.N = (size_t)g->count[i];
        one.w = &w;
        one.dout.x = const_element(t, l->dout.x, row * w.O);
        one.pre = const_element(t, l->pre, row * C);
        one.dinp = element(t, l->dinp, row * C);
        one.accumulate = 0;
        if (one.N > 0 && table_of(q)->linear_backward_input(q, &one) < 0)
            return -1;
        row += one.N;
    }
    memset(element(t, l->dinp, row * C), 0,
           (g->rows - row) * C * plait_dtype_size(t));
    return 0;
}

int host_grouped_backward_weight(struct plait_queue *q,
                                 const struct plait_groups *g,
                                 const struct plait_linear_dw *l)
{
    size_t row = 0;

    for (int i = 0; i < g->n; i++) {
        size_t at = (size_t)i * g->stride;
        struct plait_linear_dw one = *l;

        one.N = (size_t)g->count[i];
        one.dout.x = const_element(l->type, l->dout.x, row * l->O);
        one.inp.x = const_element(l->type, l->inp.x, row * l->C);
        one.dw = l->dw + at;
        one.dbias = l->dbias != NULL ? l->dbias + at : NULL;
        if (table_of(q)->linear_backward_weight(q, &one) < 0)
            return -1;
        row += one.N;
    }
    return 0;
}
