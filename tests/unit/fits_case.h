/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_FITS_CASE_H
#define PLAIT_TESTS_UNIT_FITS_CASE_H

/* Rules of which keys go together, each at its border. */

#include <errno.h>
#include <string.h>

#include "tap.h"
#include "topology/job/fits.h"

/* A configuration that satisfies every rule with every layout below; each case
 * then changes what its rule checks. */
static inline void set_good(struct plait_job_config *c, struct plait_layout *l)
{
    memset(c, 0, sizeof(*c));
    c->model = (struct plait_model_config){.family = PLAIT_LLAMA,
                                           .layers = 8,
                                           .hidden = 64,
                                           .heads = 8,
                                           .kv_heads = 4,
                                           .ffn = 192,
                                           .vocab = 257,
                                           .seq_len = 32,
                                           .experts = 8,
                                           .experts_top_k = 2};
    c->parallel.schedule = PLAIT_SCHEDULE_1F1B;
    c->parallel.virtual_stages = 1;
    plait_layout_init(&c->parallel.layout);
    c->train.global_batch = 16;
    c->train.micro_batch = 2;
    c->sync.mixing = -1; /* not given */
    plait_layout_init(l);
}

/* Which function must refuse the case. */
enum rule { CONFIG, MODEL, MICRO_BATCH, TRAINER, ALL };

static inline int apply_rule(enum rule rule, const struct plait_job_config *c,
                             const struct plait_layout *l,
                             struct plait_error *err)
{
    switch (rule) {
    case CONFIG:
        return plait_fits_config(c, err);
    case MODEL:
        return plait_fits_model(c, l, err);
    case MICRO_BATCH:
        return plait_fits_micro_batch(c, l, c->train.micro_batch, err);
    case TRAINER:
        return plait_fits_trainer(c, err);
    default:
        return plait_fits(c, l, err);
    }
}

static inline void check_rule(enum rule rule, const struct plait_job_config *c,
                              const struct plait_layout *l, const char *says)
{
    struct plait_error err = {""};
    int rc;

    errno = 0;
    rc = apply_rule(rule, c, l, &err);
    if (says)
        ok(rc == -1 && errno == EINVAL && strcmp(err.text, says) == 0, "%s",
           err.text[0] ? err.text : says);
    else
        ok(rc == 0, "fits %s", err.text);
}

/* Checks a rule at its border: the last value that fits, the first that does
 * not. */
#define CASE(rule, says, ...)           \
    do {                                \
        struct plait_job_config c;      \
        struct plait_layout l;          \
        set_good(&c, &l);               \
        __VA_ARGS__;                    \
        check_rule(rule, &c, &l, says); \
    } while (0)

#define TO_GPT2 c.model.family = PLAIT_GPT2, c.model.kv_heads = 8
#define TO_LATENT                                          \
    c.model.kv_heads = c.model.heads, c.model.mla_kv = 16, \
    c.model.mla_nope = 6, c.model.mla_rope = 2, c.model.mla_value = 8

#endif
