/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "topology/job/stage.h"
#include "topology/predict/estimate_shape.h"

/* The whole gradients that ZeRO 2 and 3 hold at once, found by walking through
 * backward as runtime/model/run.c does and counting as zero.c does. A block's
 * gradient exists from its first use until its sum is complete, and two sums
 * are in progress at once. So only blocks that are used shortly after each
 * other are held together, also across the ends of the passes: three passes of
 * one chunk in a row and two turns of all chunks have the same maximum as the
 * whole step. */

#define UNDER_WAY 2
#define PASSES 3
#define TURNS 2

struct walk {
    const struct plait_shape *s;
    struct plait_zero_count *count;
    int whole[PLAIT_KINDS]; /* held by blocks or by sums */
    int sums[PLAIT_KINDS];
    bool head, embedding, mtp, experts; /* held since a forward pass: those of
                                         * the head, of the module before it */
    bool layers; /* all of them, since the input half of a backward */
    enum plait_region_kind under_way[UNDER_WAY];
    int started; /* sums */
};

static void hold(struct walk *w, enum plait_region_kind kind)
{
    w->whole[kind]++;
    if (w->whole[kind] > w->count->whole[kind])
        w->count->whole[kind] = w->whole[kind];
}

static void sum(struct walk *w, enum plait_region_kind kind)
{
    enum plait_region_kind *at = &w->under_way[w->started % UNDER_WAY];

    if (w->started++ >= UNDER_WAY) {
        w->whole[*at]--;
        w->sums[*at]--;
    }
    *at = kind;
    w->sums[kind]++;
    if (w->sums[kind] > w->count->sums[kind])
        w->count->sums[kind] = w->sums[kind];
}

static void hold_once(struct walk *w, enum plait_region_kind kind, bool *held)
{
    if (!*held)
        hold(w, kind);
    *held = true;
}

static void sum_once(struct walk *w, enum plait_region_kind kind, bool *held)
{
    if (*held)
        sum(w, kind);
    *held = false;
}

/* The head's gradient is made in the forward pass, and with it those of an
 * embedding with the same weights and of a module that predicts a token
 * further. */
static void forward(struct walk *w)
{
    const struct plait_model_config *m = w->s->m;

    hold_once(w, PLAIT_KIND_HEAD, &w->head);
    if (plait_model_shares_table(m) && w->s->pp == 1)
        hold_once(w, PLAIT_KIND_EMBEDDING, &w->embedding);
    if (m->mtp_layers)
        hold_once(w, PLAIT_KIND_MTP, &w->mtp);
    if (m->mtp_layers && m->experts)
        hold_once(w, PLAIT_KIND_EXPERT, &w->experts);
}

/* Those of a chunk, the first one of which is the model's so manieth. */
struct layers {
    int first, n;
};

static void hold_layer(struct walk *w, bool dense)
{
    hold(w, dense ? PLAIT_KIND_DENSE : PLAIT_KIND_LAYER);
    if (w->s->m->experts && !dense)
        hold(w, PLAIT_KIND_EXPERT);
}

static void sum_layer(struct walk *w, bool dense)
{
    if (w->s->m->experts && !dense)
        sum(w, PLAIT_KIND_EXPERT);
    sum(w, dense ? PLAIT_KIND_DENSE : PLAIT_KIND_LAYER);
}

static void backward(struct walk *w, struct layers n, bool first, bool last)
{
    if (last) {
        sum_once(w, PLAIT_KIND_HEAD, &w->head);
        sum_once(w, PLAIT_KIND_EXPERT, &w->experts);
        sum_once(w, PLAIT_KIND_MTP, &w->mtp);
    }
    for (int i = n.first + n.n - 1; i >= n.first; i--) {
        bool dense = plait_model_dense(w->s->m, i);

        if (!w->layers)
            hold_layer(w, dense);
        sum_layer(w, dense);
    }
    w->layers = false;
    if (!first)
        return;
    hold_once(w, PLAIT_KIND_EMBEDDING, &w->embedding);
    sum_once(w, PLAIT_KIND_EMBEDDING, &w->embedding);
}

/* The half of a backward that makes input gradients already holds the gradients
 * that the other half will add to. */
static void backward_input(struct walk *w, struct layers n, bool first)
{
    for (int i = n.first + n.n - 1; i >= n.first && !w->layers; i--)
        hold_layer(w, plait_model_dense(w->s->m, i));
    w->layers = true;
    if (first)
        hold_once(w, PLAIT_KIND_EMBEDDING, &w->embedding);
}

static int least(int a, double b)
{
    return a < b ? a : (int)b;
}

/* Rank r makes its weight gradients r micro-batches late. */
static void halves(struct walk *w, int rank)
{
    const struct plait_shape *s = w->s;
    bool first = rank == 0, last = rank == s->pp - 1;
    struct layers layers = {plait_shape_chunk_first(s, rank, 0),
                            plait_shape_layers(s, rank)};
    int passes = least(rank + PASSES, s->microbatches);

    for (int i = 0; i < passes + rank; i++) {
        if (last && i < passes)
            forward(w);
        if (i < passes)
            backward_input(w, layers, first);
        if (i >= rank)
            backward(w, layers, first, last);
    }
}

/* The passes of one chunk in a row. */
static void chunk(struct walk *w, int rank, int i)
{
    const struct plait_shape *s = w->s;
    bool first = rank == 0 && i == 0, last = rank == s->pp - 1 && i == s->v - 1;
    bool gpipe = s->c->parallel.schedule == PLAIT_SCHEDULE_GPIPE;
    struct layers layers = {plait_shape_chunk_first(s, rank, i),
                            plait_shape_chunk(s, rank, i)};
    int passes = s->v > 1 ? s->pp : PASSES;

    passes = least(least(PASSES, passes), s->microbatches);
    for (int pass = 0; pass < passes; pass++) {
        if (last && (pass == 0 || !gpipe))
            forward(w);
        backward(w, layers, first, last);
    }
    /* more micro-batches: the next forward comes while sums are in progress */
    if (last && !gpipe && s->microbatches > passes)
        forward(w);
}

void plait_shape_zero(const struct plait_shape *s, int rank,
                      struct plait_zero_count *count)
{
    struct walk w = {.s = s, .count = count};

    memset(count, 0, sizeof(*count));
    if (s->c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1) {
        halves(&w, rank);
        return;
    }
    for (int turn = 0; turn < (s->v > 1 ? TURNS : 1); turn++)
        for (int i = s->v - 1; i >= 0; i--)
            chunk(&w, rank, i);
}

/* Between the ends, the last layer is followed by the first. */
int plait_shape_gathered(const struct plait_shape *s, int rank, bool dense)
{
    int first = plait_shape_chunk_first(s, rank, 0), most = 0;
    int n = plait_shape_layers(s, rank), all = plait_shape_dense(s, rank);
    bool ring = rank > 0 && rank < s->pp - 1;

    if (s->v > 1)
        return least(dense ? all : n - all, 2);
    for (int i = 0; i < n; i++) {
        int next = i + 1 < n ? i + 1 : ring ? 0 : i;
        int both =
            (plait_model_dense(s->m, first + i) == dense) +
            (next != i && plait_model_dense(s->m, first + next) == dense);
        most = both > most ? both : most;
    }
    return most;
}

/* Behind the last layer are those of a module that predicts a token further. */
int plait_shape_gathered_further(const struct plait_shape *s, int rank)
{
    const struct plait_model_config *m = s->m;
    int here = plait_shape_gathered(s, rank, false);
    bool last = plait_shape_chunk(s, rank, s->v - 1) > 0 &&
                !plait_model_dense(m, m->layers - 1);

    if (rank < s->pp - 1 || !m->mtp_layers || !m->experts)
        return 0;
    return here > last ? 0 : 1 + last - here;
}
