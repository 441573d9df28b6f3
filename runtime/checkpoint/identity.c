/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/checkpoint/identity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/model_source.h"

bool plait_identity_is_allowed(const char *list, const char *key)
{
    size_t n = strlen(key), length;

    for (; list && *list; list += length + (list[length] == ',')) {
        length = strcspn(list, ",");
        if (length == n && !memcmp(list, key, n))
            return true;
    }
    return false;
}

/* Settings that matter where only weights are used: those of the model, except
 * those that only affect training. */
static bool is_of_weights(const char *key)
{
    static const char *const training[] = {"model.seq_len",
                                           "model.experts_balance",
                                           "model.experts_balance_rate",
                                           "model.experts_balance_over",
                                           "model.loss",
                                           "model.label_smoothing",
                                           "model.dropout",
                                           "model.attention_dropout"};

    for (size_t i = 0; i < sizeof(training) / sizeof(training[0]); i++)
        if (!strcmp(key, training[i]))
            return false;
    return !strncmp(key, "model.", 6);
}

/* Whether another value of `key` would make what replicas have sent arrive
 * elsewhere, or never. */
static bool moves_sent(const struct plait_manifest *m, const char *key)
{
    return plait_manifest_is_under_way(m) &&
           (!strcmp(key, "sync.delay") || !strcmp(key, "sync.steps") ||
            !strcmp(key, "sync.fragments"));
}

/* A checkpoint of one model may be loaded into many replicas, so sync.* may
 * differ; check_replicas() in load.c compares their number. Where no step is
 * left to make, no learning rate depends on how many there are. */
static bool is_compared(const struct plait_manifest *m,
                        const struct plait_job_config *config, const char *key,
                        bool weights, const char *anyway)
{
    if (!strcmp(key, "train.steps") && m->info.step >= config->train.steps)
        return false;
    if (weights && !is_of_weights(key))
        return false;
    if (m->replicas == 0 && !strncmp(key, "sync.", 5))
        return false;
    return moves_sent(m, key) || !plait_identity_is_allowed(anyway, key);
}

/* Append `more` after a separator; false: no more room. */
static bool append(char *text, size_t size, const char *separator,
                   const char *more)
{
    size_t n = strlen(text), length = strlen(more) + strlen(separator);

    if (n + length >= size)
        return false;
    snprintf(text + n, size - n, "%s%s", n ? separator : "", more);
    return true;
}

/* The settings that differ. Those with which a run cannot go on at all are said
 * alone. */
enum difference { NONE, OTHER, MOVES_SENT, SHAPES };
struct differences {
    char what[240], keys[120];
    enum difference worst;
    bool full;
};

static int refuse(const char *path, const struct differences *d,
                  struct plait_error *err)
{
    const char *what = d->what, *keys = d->keys;

    errno = EINVAL;
    if (d->worst == MOVES_SENT)
        return plait_errorf(err,
                            "%s: what replicas have sent has not arrived yet "
                            "(sync.delay): %s; set that back, and change it "
                            "at a checkpoint where nothing is under way",
                            path, what);
    if (d->worst == SHAPES)
        return plait_errorf(err,
                            "%s: its weights have other shapes: %s; set that "
                            "back to resume from it, or begin a new run with "
                            "another checkpoint.dir and --resume none",
                            path, what);
    return plait_errorf(err,
                        "%s: it belongs to a run with other settings: %s; add "
                        "--resume-anyway %s to resume from it",
                        path, what, keys);
}

static enum difference kind_of(const struct plait_manifest *m, const char *key)
{
    if (plait_settings_shapes(key))
        return SHAPES;
    return moves_sent(m, key) ? MOVES_SENT : OTHER;
}

static void add(struct differences *d, enum difference kind, const char *key,
                const char *there, const char *here)
{
    char one[300];

    if (kind < d->worst || (d->full && kind == d->worst))
        return;
    if (kind > d->worst)
        *d->what = *d->keys = '\0';
    d->worst = kind;
    snprintf(one, sizeof(one), "%s was %.40s there and is %.40s here", key,
             there, here);
    d->full = !append(d->what, sizeof(d->what), ", ", one) ||
              !append(d->keys, sizeof(d->keys), ",", key);
}

/* What is under way arrives in a step of this run. */
static int check_sent(const char *path, const struct plait_manifest *m,
                      int64_t steps, struct plait_error *err)
{
    if (m->info.step < steps || !plait_manifest_is_under_way(m))
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: what replicas have sent has not arrived yet "
                        "(sync.delay), and arrives in a later step: "
                        "train.steps must be above %" PRId64 ", not %" PRId64,
                        path, m->info.step, steps);
}

int plait_identity_check(const char *path, const struct plait_manifest *m,
                         const struct plait_job_config *config, bool weights,
                         const char *anyway, struct plait_error *err)
{
    struct plait_settings *now = malloc(sizeof(*now));
    struct differences d = {.worst = NONE};
    struct plait_setting initial;
    int rc = now ? plait_settings_list(config, now) : -1;

    for (int i = 0; rc >= 0 && i < now->n; i++) {
        const char *key = now->at[i].key, *here = now->at[i].value;
        const char *there = plait_settings_value(&m->settings, key);

        if (!is_compared(m, config, key, weights, anyway))
            continue;
        if (!there) { /* an earlier version did not know it */
            rc = plait_settings_default(config, key, &initial);
            there = rc > 0 ? initial.value : here;
        }
        if (rc >= 0 && strcmp(there, here) != 0)
            add(&d, kind_of(m, key), key, there, here);
    }
    free(now);
    if (rc >= 0 && d.worst == NONE && !weights)
        return check_sent(path, m, config->train.steps, err);
    if (rc < 0)
        return plait_errorf(err, "%s: out of memory", path);
    return d.worst != NONE ? refuse(path, &d, err) : 0;
}

int plait_identity_check_model(const char *directory,
                               const struct plait_model_config *model,
                               struct plait_error *err)
{
    struct plait_model_config there;
    char *path;
    bool missing;

    if (asprintf(&path, "%s/plait.yaml", directory) < 0)
        return plait_errorf(err, "%s: out of memory", directory);
    missing = access(path, F_OK) < 0;
    free(path);
    if (missing)
        return 0;
    if (plait_model_file_read(directory, &there, err) < 0)
        return -1;
    return plait_model_same(directory, &there, model, err);
}
