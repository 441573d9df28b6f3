/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/dtype.h"
#include "ops_cases.h"

/* -- moving and arithmetic: shape {n} or {rows, cols} ------------------ */

static void setup_cast(struct trial *t, const int *s)
{
    trial_real(t, KIND_T, product(s, 1), -4, 4);
    trial_real(t, KIND_F32, product(s, 1), -4, 4);
    real32(t, product(s, 1));
    real(t, product(s, 1));
}

static int call_cast(struct trial_side *d, const int *s)
{
    size_t n = product(s, 1);

    return d->ops->cast(d->q, PLAIT_F32, d->p[2], d->type, d->p[0], n) |
           d->ops->cast(d->q, d->type, d->p[3], PLAIT_F32, d->p[1], n);
}

static void setup_elementwise(struct trial *t, const int *s)
{
    real(t, product(s, 1));
    real(t, product(s, 1));
    real(t, product(s, 1));
}

static int call_add(struct trial_side *d, const int *s)
{
    size_t n = product(s, 1);

    return d->ops->add(d->q, d->type, d->p[2], d->p[0], d->p[1], n) |
           d->ops->add(d->q, d->type, d->p[0], d->p[0], d->p[1], n) |
           d->ops->add_scaled(d->q, d->type, d->p[0], d->p[0], d->p[1], -0.3f,
                              n) |
           d->ops->add_scaled(d->q, d->type, d->p[2], d->p[0], d->p[1], 1.7f,
                              n) |
           d->ops->scale(d->q, d->type, d->p[1], 0.37f, n);
}

static void setup_bias_backward(struct trial *t, const int *s)
{
    real(t, product(s, 2));
    real32(t, (size_t)s[1]);
}

static int call_bias_backward(struct trial_side *d, const int *s)
{
    return d->ops->bias_backward(d->q, d->type, d->p[1], d->p[0], (size_t)s[0],
                                 (size_t)s[1]);
}

static void setup_copy_2d(struct trial *t, const int *s)
{
    real(t, (size_t)s[0] * (size_t)(s[1] + 5));
    real(t, (size_t)s[0] * (size_t)(s[1] + 2));
    real(t, (size_t)s[0]);
    real(t, (size_t)s[0]);
}

static int call_copy_2d(struct trial_side *d, const int *s)
{
    size_t rows = (size_t)s[0], cols = (size_t)s[1];
    size_t bytes = rows * plait_dtype_size(d->type);

    return d->ops->copy_2d(d->q, d->type, d->p[1], cols + 2, d->p[0], cols + 5,
                           rows, cols) |
           d->ops->copy(d->q, d->p[2], d->p[0], bytes) |
           d->ops->fill_zero(d->q, d->p[3], bytes);
}

/* Copies array 0 to pinned memory and back to array 1, on a queue beside that
 * of the other ops. */
static void setup_pinned(struct trial *t, const int *s)
{
    real(t, product(s, 1));
    real(t, product(s, 1));
}

static int call_pinned(struct trial_side *d, const int *s)
{
    size_t bytes = product(s, 1) * plait_dtype_size(d->type), now = 0;
    void *pinned = d->ops->pinned_alloc(d->dev, bytes);
    struct plait_queue *q = d->ops->queue_create(d->dev, 0);
    struct plait_event *ev = d->ops->event_create(d->dev, 0);
    int rc = -1;

    d->ops->pinned_memory(d->dev, &now, NULL);
    if (pinned != NULL && q != NULL && ev != NULL && now == bytes)
        rc = d->ops->scale(d->q, d->type, d->p[0], 3, product(s, 1)) |
             d->ops->event_record(ev, d->q) | d->ops->event_wait(ev, q) |
             d->ops->copy_out(q, pinned, d->p[0], bytes) |
             d->ops->copy_in(q, d->p[1], pinned, bytes) | d->ops->queue_sync(q);
    d->ops->event_destroy(ev);
    d->ops->queue_destroy(q);
    d->ops->pinned_free(d->dev, pinned);
    d->ops->pinned_memory(d->dev, &now, NULL);
    return now == 0 ? rc : -1;
}

const struct trial_case trial_moving[] = {
    {"cast", setup_cast, call_cast, {{1}, {1000}, {70001}}},
    {"add, scale", setup_elementwise, call_add, {{1}, {1003}, {66000}}},
    {"bias_backward",
     setup_bias_backward,
     call_bias_backward,
     {{7, 5}, {130, 257}}},
    {"copy_2d, copy, fill_zero", setup_copy_2d, call_copy_2d, {{33, 17}}},
    {"copy_out, copy_in", setup_pinned, call_pinned, {{1}, {70001}}},
    {NULL, NULL, NULL, {{0}}},
};

int trial_waits(const struct trial_case *c)
{
    return c->call == call_pinned;
}
