/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest change with which a training fits in memory: of the fewest
 * settings, and of those the fastest. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/job/fits.h"
#include "topology/predict/auto.h"

/* More settings than there are to change. */
enum { NONE_FITS = 100 };

struct change_search {
    const struct plait_job_config *given;
    const struct plait_layout *layout; /* that was asked for */
    const struct plait_gpu_type *gpu;
    struct plait_job_config config; /* `given` with the change */
    int fewest;                     /* settings that the best one changes */
    struct plait_change *best;
};

static bool same_sizes(const struct plait_layout *a,
                       const struct plait_layout *b)
{
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (a->size[i] != b->size[i])
            return false;
    return true;
}

static int count_changes(const struct change_search *s,
                         const struct plait_layout *l)
{
    const struct plait_parallel_config *a = &s->given->parallel;
    const struct plait_parallel_config *b = &s->config.parallel;

    return !same_sizes(l, s->layout) + (a->zero != b->zero) +
           (a->recompute != b->recompute) + (a->sequence != b->sequence) +
           (a->offload != b->offload) +
           (s->given->train.micro_batch != s->config.train.micro_batch);
}

static void add_flag(char *text, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void add_flag(char *text, size_t size, const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list ap;

    if (n && n + 1 < size)
        text[n++] = ' ';
    va_start(ap, fmt);
    vsnprintf(text + n, size - n, fmt, ap);
    va_end(ap);
}

/* The change as options of plait estimate. */
static void write_flags(const struct change_search *s,
                        const struct plait_layout *l, char *text, size_t size)
{
    const struct plait_parallel_config *a = &s->given->parallel;
    const struct plait_parallel_config *b = &s->config.parallel;

    *text = '\0';
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (l->size[i] != s->layout->size[i])
            add_flag(text, size, "--%s=%d", plait_axis_names[i], l->size[i]);
    if (b->zero != a->zero)
        add_flag(text, size, "--zero=%d", b->zero);
    if (s->config.train.micro_batch != s->given->train.micro_batch)
        add_flag(text, size, "--micro-batch=%d", s->config.train.micro_batch);
    if (b->sequence && !a->sequence)
        add_flag(text, size, "--sequence");
    if (b->recompute != a->recompute)
        add_flag(text, size, "--recompute=%s",
                 plait_recompute_names[b->recompute]);
    if (b->offload != a->offload)
        add_flag(text, size, "--set parallel.offload=%s",
                 plait_offload_names[b->offload]);
}

/* Keep the change if it fits, and is smaller or as small and faster. */
static void try_change(struct change_search *s, const struct plait_layout *l)
{
    struct plait_job_config *c = &s->config;
    int changes = count_changes(s, l);
    struct plait_estimate e;

    if (changes == 0 || changes > s->fewest || plait_fits_config(c, NULL) < 0 ||
        plait_estimate(c, l, s->gpu, &e, NULL) < 0 ||
        e.memory.total > s->gpu->memory ||
        e.memory.host > s->gpu->host_memory ||
        (changes == s->fewest && e.step_s >= s->best->step_s))
        return;
    s->fewest = changes;
    s->best->total = e.memory.total;
    s->best->step_s = e.step_s;
    write_flags(s, l, s->best->flags, sizeof(s->best->flags));
}

/* Only plait-train is told by a key what it offloads. */
static void try_offload(struct change_search *s, const struct plait_layout *l)
{
    struct plait_parallel_config *p = &s->config.parallel;
    enum plait_offload given = p->offload;

    try_change(s, l);
    if (given != PLAIT_OFFLOAD_NONE || !s->gpu->units ||
        s->given->framework != PLAIT_FRAMEWORK_PLAIT)
        return;
    for (int i = PLAIT_OFFLOAD_OPTIMIZER; i <= PLAIT_OFFLOAD_BOTH; i++) {
        p->offload = (enum plait_offload)i;
        try_change(s, l);
    }
    p->offload = given;
}

static void try_recompute(struct change_search *s, const struct plait_layout *l)
{
    struct plait_parallel_config *p = &s->config.parallel;
    enum plait_layers_said said =
        plait_framework_traits[s->given->framework].recomputes;
    bool selects = said == PLAIT_LAYERS_ALL || said == PLAIT_LAYERS_STAGE;

    for (int i = (int)s->given->parallel.recompute; i <= PLAIT_RECOMPUTE_FULL;
         i++) {
        if (i == PLAIT_RECOMPUTE_SELECTIVE && !selects)
            continue;
        p->recompute = (enum plait_recompute)i;
        try_offload(s, l);
    }
    p->recompute = s->given->parallel.recompute;
}

/* Whether the software has this ZeRO stage, and something to divide by it. */
static bool has_stage(const struct change_search *s,
                      const struct plait_layout *l, int zero)
{
    const struct plait_framework_traits *traits =
        &plait_framework_traits[s->given->framework];

    if (zero == s->given->parallel.zero)
        return true;
    return l->size[PLAIT_DP] * l->size[PLAIT_CP] > 1 &&
           zero >= (traits->fsdp ? 2 : 0) &&
           (traits->zero_stages == 0 || zero < traits->zero_stages);
}

static void try_settings(struct change_search *s, const struct plait_layout *l)
{
    struct plait_parallel_config *p = &s->config.parallel;
    const struct plait_parallel_config *given = &s->given->parallel;

    p->layout = *l;
    for (int sequence = given->sequence; sequence <= 1; sequence++) {
        p->sequence = sequence;
        if (sequence > given->sequence && l->size[PLAIT_TP] == 1)
            break;
        for (p->zero = given->zero; p->zero <= 3; p->zero++)
            for (int m = s->given->train.micro_batch;
                 m >= 1 && has_stage(s, l, p->zero); m--) {
                s->config.train.micro_batch = m;
                if (s->given->train.global_batch / l->size[PLAIT_DP] % m == 0)
                    try_recompute(s, l);
            }
    }
    p->zero = given->zero;
    p->sequence = given->sequence;
    s->config.train.micro_batch = s->given->train.micro_batch;
}

/* Other sizes of tp and pp, and dp what is left. */
static void try_sizes(struct change_search *s)
{
    int rest = s->layout->size[PLAIT_TP] * s->layout->size[PLAIT_PP] *
               s->layout->size[PLAIT_DP];
    struct plait_layout l = *s->layout;

    for (int tp = 1; tp <= s->gpu->per_node && tp <= rest; tp++)
        for (int pp = 1; pp <= s->given->model.layers && pp <= rest / tp;
             pp++) {
            if (rest % (tp * pp))
                continue;
            l.size[PLAIT_TP] = tp;
            l.size[PLAIT_PP] = pp;
            l.size[PLAIT_DP] = rest / (tp * pp);
            if (!same_sizes(&l, s->layout) &&
                plait_fits_model(&s->config, &l, NULL) == 0)
                try_settings(s, &l);
        }
}

bool plait_estimate_change(const struct plait_job_config *config,
                           const struct plait_layout *layout,
                           const struct plait_gpu_type *gpu,
                           struct plait_change *change)
{
    struct change_search s = {.given = config,
                              .layout = layout,
                              .gpu = gpu,
                              .config = *config,
                              .fewest = NONE_FITS,
                              .best = change};

    try_settings(&s, layout);
    /* Another layout is three options: more than one setting that fits. */
    if (s.fewest > 1 && !plait_framework_traits[config->framework].data_alone)
        try_sizes(&s);
    return s.fewest < NONE_FITS;
}
