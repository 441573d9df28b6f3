/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "topology/job/fits.h"
#include "topology/job/model_size.h"
#include "topology/predict/estimate.h"

/* What suits tensor cores and their tiles: dimensions in multiples of 8 (16
 * bytes of bf16), better 64 (a warp group's tile), best 128; and as many tiles
 * as fill the multiprocessors in whole waves. */

enum { TILE = 128, LANE = 64 };

struct advisor {
    struct plait_advice *lines;
    int n, most;
};

static void add_advice(struct advisor *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void add_advice(struct advisor *a, const char *fmt, ...)
{
    va_list ap;

    if (a->n == a->most)
        return;
    va_start(ap, fmt);
    vsnprintf(a->lines[a->n++].text, sizeof(a->lines->text), fmt, ap);
    va_end(ap);
}

static int round_up(int value, int to)
{
    return (value + to - 1) / to * to;
}

/* A dimension that is no multiple of its tile is computed as if it were
 * padded, and one that is no multiple of 8 falls back to slower loads. */
static void advise_multiple(struct advisor *a, const char *what, int value,
                            int want)
{
    int padded = round_up(value, want);

    if (value % want == 0)
        return;
    add_advice(a,
               "%s is %d: pad to %d; the last %d are %d %% empty, so up to "
               "%.1f %% of those products' time is padding%s",
               what, value, padded, want, 100 * (padded - value) / want,
               100.0 * (padded - value) / padded,
               value % 8 ? ", and loads are not 16-byte aligned" : "");
}

/* Tiles of the widest product, in waves over the GPU's multiprocessors. */
static void advise_waves(struct advisor *a, const struct plait_job_config *c,
                         const struct plait_layout *l, int units)
{
    double rows =
        (double)c->train.micro_batch * c->model.seq_len / l->size[PLAIT_CP];
    int tall = (int)((rows + TILE - 1) / TILE);
    int wide = round_up(c->model.ffn / l->size[PLAIT_TP], TILE) / TILE;
    double waves = (double)tall * wide / units;
    int whole = (int)waves + (waves > (int)waves);

    if (waves > 0 && waves / whole < 0.8)
        add_advice(a,
                   "the ffn product is %d x %d tiles, %.2f waves over %d "
                   "multiprocessors: the last wave is %.0f %% idle; a larger "
                   "micro-batch evens it out",
                   tall, wide, waves, units, 100 * (whole - waves));
}

int plait_estimate_advise(const struct plait_job_config *c,
                          const struct plait_layout *l,
                          const struct plait_gpu_type *gpu,
                          struct plait_advice *lines, int most)
{
    const struct plait_model_config *m = &c->model;
    struct advisor a = {lines, 0, most};
    int tp = l->size[PLAIT_TP];
    struct plait_error refusal;

    if (plait_is_image_model(m))
        return 0;
    if (c->further_left_out)
        add_advice(&a, "the model has more than one layer of multi-token "
                       "prediction, which are left out (model.mtp_layers 0)");
    if (c->framework != PLAIT_FRAMEWORK_PLAIT &&
        plait_fits_trainer(c, &refusal) < 0)
        add_advice(&a, "as %s trains it: %s",
                   plait_framework_names[c->framework], refusal.text);
    advise_multiple(&a, "vocab", m->vocab, TILE * tp);
    advise_multiple(&a, "hidden", m->hidden, TILE);
    advise_multiple(&a, "ffn / tp", m->ffn / tp, TILE);
    if (m->mla_kv) /* its heads are not shares of hidden */
        advise_multiple(&a, "model.mla: columns of a head of q",
                        plait_model_query_width(m), LANE);
    else
        advise_multiple(&a, "hidden / heads", plait_model_head_dim(m), LANE);
    advise_multiple(&a, "micro_batch * seq_len / cp",
                    c->train.micro_batch * m->seq_len / l->size[PLAIT_CP],
                    TILE);
    if (l->size[PLAIT_PP] > 1 &&
        c->train.global_batch / (l->size[PLAIT_DP] * c->train.micro_batch) <
            4 * l->size[PLAIT_PP])
        add_advice(&a,
                   "%d micro-batches through %d stages leave a large bubble: "
                   "at least %d are better",
                   c->train.global_batch /
                       (l->size[PLAIT_DP] * c->train.micro_batch),
                   l->size[PLAIT_PP], 4 * l->size[PLAIT_PP]);
    if (gpu->units > 0)
        advise_waves(&a, c, l, gpu->units);
    return a.n;
}
