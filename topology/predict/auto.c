/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/auto.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "topology/job/fits.h"
#include "topology/plan/traffic.h"
#include "topology/predict/estimate_shape.h"

/* Plain enumeration: the space is small (some forty thousand layouts for a
 * thousand GPUs) and an estimate takes a few microseconds. So nothing has to be
 * guessed about which settings go well together. What a run would refuse is
 * refused here by the same rules (topology/job/fits.h), and what it would
 * allocate is counted by the same table (topology/job/held.h).
 *
 * The loops, from the outside: tp, cp and pp, from which dp follows
 * (try_layouts); ep (try_experts); micro-batches (try_batches); virtual stages
 * and ZeRO stages (try_settings); recompute (try_recompute); offload
 * (try_offload). Two facts save most of the work:
 *   - What needs less memory needs more time. So recompute and offload are only
 *     tried where the choice before them does not fit.
 *   - Weights, gradients and the optimizer's state are the same whatever is
 *     recomputed. Where they alone are too large, nothing is estimated
 *     (exceeds()).
 * plait_choices_keep() keeps the fastest choices in order. Its ties are decided
 * by complexity(), and nothing depends on the machine or on time, so that the
 * same question has the same answer everywhere. */

/* SIMULATED: as many of the best are simulated before they are ranked. */
enum { CHUNKS_MOST = 12, SIMULATED = 10 };

struct search {
    struct plait_job_config
        config; /* the caller's, with the choice filled in */
    struct plait_layout wanted;
    const struct plait_gpu_type *gpu;
    double room; /* bytes of a GPU's memory that a choice may fill */
    int most;
    int fixed;           /* schedule, zero, micro-batch and recompute stay */
    int whole;           /* nothing more is offloaded */
    int any;             /* the first that fits is enough; then also: */
    int zero, recompute; /* those of the least memory */
    /* Bytes of a rank that neither recompute nor offloaded activations make
     * less, of the settings that are being tried: weights and gradients; the
     * optimizer's state. 0: not known. */
    double weights, state;
    struct plait_choices *found;
};

/* Whether the layout fits in memory; -1: nobody can train so. Sets the memory
 * in `e`, and if nothing has fitted yet, also where this does not;
 * plait_shape_finish() sets the rest. */
static int fits(const struct search *s, const struct plait_layout *layout,
                struct plait_shape *shape, struct plait_estimate *e)
{
    double enough = s->found->n ? s->room : INFINITY;

    if (plait_shape_begin(shape, &s->config, layout, s->gpu, enough, e, NULL) <
        0)
        return -1;
    return e->memory.total <= s->room && e->memory.host <= s->gpu->host_memory;
}

/* Whether what is known of the settings says that they do not fit; while
 * nothing has fitted, all are sized for the least memory. */
static bool exceeds(const struct search *s)
{
    bool away = s->config.parallel.offload & PLAIT_OFFLOAD_OPTIMIZER;

    return s->found->n > 0 && s->weights + (away ? 0 : s->state) > s->room;
}

/* Estimate one choice, and keep it if it fits in memory. Returns whether it
 * does. */
static int try_one(struct search *s, const struct plait_layout *layout)
{
    struct plait_job_config *c = &s->config;
    struct plait_choice choice = {.layout = *layout,
                                  .parallel = c->parallel,
                                  .micro_batch = c->train.micro_batch};
    double total;
    struct plait_shape shape;
    int fitted;

    if (plait_fits_config(c, NULL) < 0)
        return 0;
    if (exceeds(s)) {
        s->found->tried++;
        s->found->too_large++;
        return 0;
    }
    fitted = fits(s, layout, &shape, &choice.estimate);
    if (fitted < 0)
        return 0;
    s->found->tried++;
    total = choice.estimate.memory.total;
    if (c->parallel.offload == PLAIT_OFFLOAD_NONE && !s->fixed) {
        s->weights =
            choice.estimate.memory.weights + choice.estimate.memory.gradients;
        s->state = choice.estimate.memory.optimizer;
    }
    if (s->found->tried == 1 ||
        (!s->found->n && total < s->found->least_memory))
        s->found->least_memory = total;
    if (!fitted) {
        s->found->too_large++;
        return 0;
    }
    plait_shape_finish(&shape, &choice.estimate);
    plait_choices_keep(s->found, s->most, &choice);
    return 1;
}

/* The layers of choice k, the fewest first, that a user of the framework can
 * choose to recompute or to offload; 0: there are no more. */
static int layers_of(const struct search *s, const struct plait_layout *layout,
                     enum plait_layers_said said, int k)
{
    int all = s->config.model.layers, n = 0;

    if (said == PLAIT_LAYERS_FIRST)
        n = k;
    else if (said == PLAIT_LAYERS_STAGE)
        n = k * layout->size[PLAIT_PP] * s->config.parallel.virtual_stages;
    return n < all ? n : 0;
}

/* What fits with all layers recomputed or offloaded may fit with fewer: find
 * the fewest by bisection. */
static void try_fewer(struct search *s, const struct plait_layout *layout,
                      enum plait_layers_said said, int *layers)
{
    int low = 0, high = s->config.model.layers;

    if (said == PLAIT_LAYERS_ALL || said == PLAIT_LAYERS_NONE || s->any)
        return;
    while (low + 1 < high) {
        int middle = low + (high - low) / 2;
        struct plait_estimate e;
        struct plait_shape shape;

        *layers = layers_of(s, layout, said, middle);
        if (!*layers || fits(s, layout, &shape, &e) == 1)
            high = middle;
        else
            low = middle;
    }
    *layers = layers_of(s, layout, said, high);
    if (*layers)
        try_one(s, layout);
    *layers = 0;
}

/* Offload the activations of as few layers as make it fit. */
static int offload_activations(struct search *s,
                               const struct plait_layout *layout)
{
    struct plait_parallel_config *p = &s->config.parallel;
    enum plait_layers_said said =
        plait_framework_traits[s->config.framework].offloads;
    int fitted = 0;

    if (said == PLAIT_LAYERS_NONE ||
        (said == PLAIT_LAYERS_STAGE &&
         (layout->size[PLAIT_PP] > 1 || p->recompute != PLAIT_RECOMPUTE_NONE)))
        return 0;
    p->offload = PLAIT_OFFLOAD_ACTIVATIONS;
    if (said == PLAIT_LAYERS_ALL)
        fitted = try_one(s, layout);
    else
        try_fewer(s, layout, said, &p->offload_layers);
    return fitted;
}

/* What does not fit may fit with its activations, or the optimizer's state,
 * offloaded to the host's memory, where the device has a memory of its own.
 * Returns whether it fits without that. */
static int try_offload(struct search *s, const struct plait_layout *layout)
{
    struct plait_parallel_config *p = &s->config.parallel;
    int fitted = try_one(s, layout);

    if (fitted || p->offload != PLAIT_OFFLOAD_NONE || !s->gpu->units ||
        s->whole)
        return fitted;
    if (!offload_activations(s, layout) &&
        s->config.framework == PLAIT_FRAMEWORK_PLAIT) {
        p->offload = PLAIT_OFFLOAD_OPTIMIZER;
        try_one(s, layout);
    }
    p->offload = PLAIT_OFFLOAD_NONE;
    return fitted;
}

/* Recompute nothing; where that does not fit, what is cheap, or all layers, or
 * as few of them as fit. What takes less memory takes more time, so that it
 * need not be tried where there is room. */
static void try_recompute(struct search *s, const struct plait_layout *layout)
{
    struct plait_parallel_config *p = &s->config.parallel;
    enum plait_layers_said said =
        plait_framework_traits[s->config.framework].recomputes;

    p->recompute_layers = 0; /* which the search chooses */
    for (int r = s->recompute; r <= PLAIT_RECOMPUTE_FULL; r++) {
        int fitted;

        if (r == PLAIT_RECOMPUTE_SELECTIVE && said != PLAIT_LAYERS_ALL &&
            said != PLAIT_LAYERS_STAGE)
            continue; /* this framework recomputes whole layers only */
        p->recompute = (enum plait_recompute)r;
        fitted = try_offload(s, layout);
        if (fitted && (r == PLAIT_RECOMPUTE_NONE || said == PLAIT_LAYERS_ALL))
            return;
        if (fitted && r == PLAIT_RECOMPUTE_FULL)
            try_fewer(s, layout, said, &p->recompute_layers);
    }
}

/* Schedules, ZeRO stages and recompute for one layout and micro-batch. */
static void try_settings(struct search *s, const struct plait_layout *layout)
{
    struct plait_parallel_config *p = &s->config.parallel;
    int pp = layout->size[PLAIT_PP];
    int shards = layout->size[PLAIT_DP] * layout->size[PLAIT_CP];
    const struct plait_framework_traits *traits =
        &plait_framework_traits[s->config.framework];
    bool fsdp = traits->fsdp;
    int highest = traits->zero_stages ? traits->zero_stages - 1 : 3;
    int lowest = p->shard_group == PLAIT_SHARD_NODE; /* which refuses 0 */
    int least = s->any ? s->zero : fsdp ? 2 : lowest;

    p->sequence = layout->size[PLAIT_TP] > 1 && !traits->whole_rows;
    p->recompute = PLAIT_RECOMPUTE_NONE;
    for (int v = 1; v <= (pp > 1 && !s->any ? CHUNKS_MOST : 1); v++) {
        p->virtual_stages = v;
        p->schedule = v > 1 ? PLAIT_SCHEDULE_INTERLEAVED : PLAIT_SCHEDULE_1F1B;
        p->zero = shards > 1 ? least : lowest;
        if (!plait_stage_divides(&s->config, pp, v) ||
            plait_fits(&s->config, layout, NULL) < 0)
            continue;
        /* Where any choice is enough (s->any), try only the one that needs
         * least memory. */
        for (; p->zero <= (shards > 1 ? highest : lowest); p->zero++) {
            s->weights = s->state = 0;
            try_recompute(s, layout);
        }
    }
}

/* Whether each node has as many of the ranks that share weights as plait-train
 * wants where it shards in the node or sums there first (mesh/mesh.c). */
static bool suits_nodes(const struct search *s, const struct plait_layout *l)
{
    const struct plait_parallel_config *p = &s->config.parallel;
    bool shards = p->shard_group == PLAIT_SHARD_NODE;
    int all = l->size[PLAIT_DP] * l->size[PLAIT_CP], here = 0, tasks;

    if (s->config.framework != PLAIT_FRAMEWORK_PLAIT ||
        (!shards && p->all_reduce != PLAIT_ALL_REDUCE_HIERARCHICAL))
        return true;
    tasks = plait_gpu_type_tasks(s->gpu, plait_layout_world(l));
    for (int rank = 0; rank < tasks; rank++) {
        struct plait_coord c;

        plait_layout_coord(l, rank, &c);
        here += c.at[PLAIT_TP] == 0 && c.at[PLAIT_PP] == 0;
    }
    return (shards && here == all) ||
           (here > 1 && here < all && all % here == 0);
}

static void try_batches(struct search *s, const struct plait_layout *layout)
{
    const struct plait_model_config *m = &s->config.model;
    int share = s->config.train.global_batch / layout->size[PLAIT_DP];
    bool ghost = m->family == PLAIT_RESNET && m->norm == PLAIT_NORM_GHOST;
    int first = ghost ? m->ghost_batch : 1;

    s->config.parallel.layout = *layout;
    if (!suits_nodes(s, layout)) {
        s->found->uneven++;
        return;
    }
    if (s->fixed) {
        try_one(s, layout);
        return;
    }
    for (int b = first; b <= share && b <= (s->any || first > 64 ? first : 64);
         b *= 2) {
        s->config.train.micro_batch = b;
        try_settings(s, layout);
    }
}

/* Experts over every power of two of the ranks that divides them. */
static void try_experts(struct search *s, struct plait_layout *layout)
{
    int ranks = layout->size[PLAIT_DP] * layout->size[PLAIT_CP];
    int experts = s->config.model.experts, wanted = s->wanted.size[PLAIT_EP];

    if (!experts || wanted != PLAIT_AUTO) {
        layout->size[PLAIT_EP] = wanted == PLAIT_AUTO ? 1 : wanted;
        try_batches(s, layout);
        return;
    }
    for (int ep = 1; ep <= experts && ep <= ranks; ep *= 2)
        if (experts % ep == 0 && ranks % ep == 0) {
            layout->size[PLAIT_EP] = ep;
            try_batches(s, layout);
        }
}

static bool allowed(const struct search *s, enum plait_axis axis, int size)
{
    const struct plait_framework_traits *traits =
        &plait_framework_traits[s->config.framework];
    int wanted = s->wanted.size[axis];

    if (size > 1 && ((axis != PLAIT_DP && traits->data_alone) ||
                     (axis == PLAIT_CP && traits->whole_rows)))
        return false;
    return wanted == PLAIT_AUTO || wanted == size;
}

static void try_layouts(struct search *s, int gpus)
{
    struct plait_layout l = s->wanted;
    int tp_most = s->wanted.size[PLAIT_TP]            ? s->wanted.size[PLAIT_TP]
                  : s->gpu->domain > s->gpu->per_node ? 2 * s->gpu->per_node
                                                      : s->gpu->per_node;
    int given = s->wanted.size[PLAIT_CP]; /* 0: auto */
    int cp_least = given ? given : 1, cp_most = given ? given : 16;

    if (l.size[PLAIT_EP] == PLAIT_AUTO)
        l.size[PLAIT_EP] = 1;
    for (int tp = 1; tp <= tp_most && tp <= gpus; tp++)
        for (int cp = cp_least; cp <= cp_most && cp <= gpus / tp; cp *= 2)
            for (int pp = 1;
                 pp <= s->config.model.layers + 2 && pp <= gpus / tp / cp;
                 pp++) {
                struct plait_layout resolved;

                if (gpus % (tp * cp) || gpus / (tp * cp) % pp ||
                    !allowed(s, PLAIT_TP, tp) || !allowed(s, PLAIT_CP, cp) ||
                    !allowed(s, PLAIT_PP, pp) ||
                    !allowed(s, PLAIT_DP, gpus / tp / cp / pp))
                    continue;
                l.size[PLAIT_TP] = tp;
                l.size[PLAIT_CP] = cp;
                l.size[PLAIT_PP] = pp;
                l.size[PLAIT_DP] = gpus / tp / cp / pp;
                resolved = l;
                if (plait_layout_resolve(&resolved, gpus, NULL) == 0)
                    try_experts(s, &resolved);
                if (s->any && s->found->n)
                    return;
            }
}

static struct plait_choices *search_layouts(struct search *s, int gpus)
{
    s->room = s->fixed || s->any || s->whole ? s->gpu->memory
                                             : plait_gpu_type_room(s->gpu);
    s->found = calloc(1, sizeof(*s->found));
    if (!s->found)
        return NULL;
    s->found->room = s->room;
    s->found->choice = calloc((size_t)s->most + 1, sizeof(*s->found->choice));
    if (!s->found->choice) {
        plait_choices_destroy(s->found);
        return NULL;
    }
    try_layouts(s, gpus);
    return s->found;
}

struct plait_choices *plait_auto_create(const struct plait_job_config *config,
                                        const struct plait_layout *layout,
                                        int gpus,
                                        const struct plait_gpu_type *gpu,
                                        int most)
{
    struct search s = {.config = *config,
                       .wanted = *layout,
                       .gpu = gpu,
                       .most = most > SIMULATED ? most : SIMULATED};
    struct plait_choices *found = search_layouts(&s, gpus);

    if (!found)
        return NULL;
    plait_choices_simulate(found, config, gpu, SIMULATED);
    if (found->n > most)
        found->n = most;
    plait_choices_explain(found);
    return found;
}

struct plait_choices *
plait_auto_sizes_create(const struct plait_job_config *config,
                        const struct plait_layout *layout, int gpus,
                        const struct plait_gpu_type *gpu, int most)
{
    struct search s = {.config = *config,
                       .wanted = *layout,
                       .gpu = gpu,
                       .most = most,
                       .fixed = 1};
    struct plait_choices *found = search_layouts(&s, gpus);

    if (found)
        plait_choices_explain(found);
    return found;
}

/* Set the recompute and the stage that need least memory, of those that the
 * rules let pass. */
static void set_least(struct search *s)
{
    struct plait_parallel_config *p = &s->config.parallel;

    plait_layout_init(&p->layout);
    for (int i = 4 * PLAIT_RECOMPUTE_FULL + 3; i >= 0; i--) {
        s->recompute = i / 4;
        p->recompute = (enum plait_recompute)s->recompute;
        p->zero = s->zero = i % 4;
        if (plait_fits_config(&s->config, NULL) == 0)
            return;
    }
}

/* Whether the search may keep the optimizer's state in the host's memory. */
static bool sends_state_away(const struct search *s)
{
    struct plait_job_config c = s->config;
    bool given = c.parallel.offload != PLAIT_OFFLOAD_NONE;

    if (given || c.framework != PLAIT_FRAMEWORK_PLAIT || !s->gpu->units ||
        s->whole)
        return c.parallel.offload & PLAIT_OFFLOAD_OPTIMIZER;
    c.parallel.offload = PLAIT_OFFLOAD_OPTIMIZER;
    return plait_fits_config(&c, NULL) == 0;
}

/* A lower bound: no layout of fewer GPUs can hold the weights, their gradients
 * and state. */
static int least_gpus(const struct search *s)
{
    const struct plait_job_config *c = &s->config;
    double bytes = plait_precision_size(c->train.precision) + 2;

    if (!sends_state_away(s))
        bytes += plait_optim_state_bytes(&c->optim);
    return (int)(plait_model_parameters(&c->model) * bytes / s->gpu->memory /
                 1.5);
}

static int find_fewest(struct search *s)
{
    int least;

    set_least(s);
    least = least_gpus(s);
    plait_layout_init(&s->wanted);
    for (int i = 0; i < PLAIT_NAXES; i++)
        s->wanted.size[i] = PLAIT_AUTO;
    for (int gpus = 1; gpus <= 65536; gpus *= 2) {
        struct plait_choices *c;
        int fits;

        if (gpus < least)
            continue;
        c = search_layouts(s, gpus);
        fits = c && c->n;
        plait_choices_destroy(c);
        if (fits)
            return gpus;
    }
    return 0;
}

int plait_auto_fewest(const struct plait_job_config *config,
                      const struct plait_gpu_type *gpu)
{
    return find_fewest(
        &(struct search){.config = *config, .gpu = gpu, .most = 1, .any = 1});
}

int plait_auto_fewest_whole(const struct plait_job_config *config,
                            const struct plait_gpu_type *gpu)
{
    struct search s = {
        .config = *config, .gpu = gpu, .most = 1, .any = 1, .whole = 1};

    return find_fewest(&s);
}
