/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/resume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/identity.h"
#include "runtime/checkpoint/model_source.h"
#include "runtime/comm/consensus.h"

/* What is loaded, and for whom. */
struct target {
    struct plait_comm *world;
    const char *dir;      /* checkpoint.dir, NULL: not set */
    const char *fallback; /* checkpoint.fallback, likewise */
    const char *anyway;   /* settings that may differ */
    struct plait_shards *shards;
    struct plait_optim *optim; /* NULL: the weights alone */
    struct plait_checkpoint_info *done;
};

/* A checkpoint's directory, the same on all ranks. */
struct found {
    int64_t step;
    int passed;      /* later ones that are ignored, of an abandoned run */
    char path[4096]; /* "": none */
};

/* When a checkpoint was last put in place in `dir`; 0: never. */
static double saved_at(const char *dir)
{
    struct stat st;
    char *path;
    double at = 0;

    if (asprintf(&path, "%s/latest", dir) < 0)
        return 0;
    if (lstat(path, &st) == 0)
        at = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
    free(path);
    return at;
}

/* The newest checkpoint of dir and fallback. One of the two was saved to last;
 * checkpoints in the other that are of later steps than its last, which may not
 * have been put in place, are of an abandoned run, and do not count. */
static char *newest_of_both(const struct target *t, int64_t below,
                            struct found *found, struct plait_error *err)
{
    bool swap = t->fallback && saved_at(t->fallback) > saved_at(t->dir);
    const char *first = swap ? t->fallback : t->dir;
    const char *second = swap ? t->dir : t->fallback;
    int64_t last, step = -1;
    struct plait_error why = {""};
    char *one, *other;
    int passed;

    one = plait_checkpoint_newest(first, below, &found->step, &found->passed,
                                  err);
    if (!second || (!one && err->text[0]))
        return one;
    last = plait_checkpoint_latest(first);
    other = plait_checkpoint_newest(second, last < below ? last + 1 : below,
                                    &step, &passed, &why);
    if (!one && !other)
        *err = why;
    if (other && (!one || step > found->step)) {
        found->step = step;
        free(one);
        return other;
    }
    free(other);
    return one;
}

char *plait_resume_newest(const struct plait_job_config *c,
                          struct plait_error *err)
{
    const struct target t = {.dir = c->checkpoint.dir,
                             .fallback = c->checkpoint.fallback};
    struct found found = {.step = -1};

    err->text[0] = '\0';
    return t.dir ? newest_of_both(&t, INT64_MAX, &found, err) : NULL;
}

/* Rank 0 looks for the newest checkpoint of a step before `below`. */
static int find_checkpoint(const struct target *t, int64_t below,
                           struct found *found, struct plait_error *err)
{
    char *newest = NULL;
    int rc = 0;

    memset(found, 0, sizeof(*found));
    if (plait_comm_rank(t->world) == 0) {
        newest = newest_of_both(t, below, found, err);
        if (newest)
            snprintf(found->path, sizeof(found->path), "%s", newest);
        else if (err->text[0])
            rc = -1;
        free(newest);
    }
    if (plait_error_consensus(t->world, rc, err) < 0)
        return -1;
    if (plait_comm_host_broadcast(t->world, found, sizeof(*found), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(t->world));
    return 0;
}

/* The checkpoint that `dir` means: itself, or the one saved last of a folder of
 * them, which rank 0 looks for. */
static int find_given(const struct target *t, const char *dir,
                      struct found *found, struct plait_error *err)
{
    struct plait_model_source source;
    int rc = 0;

    memset(found, 0, sizeof(*found));
    if (plait_comm_rank(t->world) == 0) {
        rc = plait_model_source_find(dir, &source, err);
        if (rc < 0)
            plait_error_prefix(err, "--resume: ");
        errno = EINVAL;
        if (rc == 0 && source.hf)
            rc = plait_errorf(err,
                              "%s: it is a model of Hugging Face's, without "
                              "the state of a run; use --init %s to start "
                              "with its weights",
                              dir, dir);
        if (rc == 0)
            snprintf(found->path, sizeof(found->path), "%s", source.path);
    }
    if (plait_error_consensus(t->world, rc, err) < 0)
        return -1;
    if (plait_comm_host_broadcast(t->world, found, sizeof(*found), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(t->world));
    return 0;
}

static int load_state(const struct target *t, const char *path,
                      struct plait_error *err)
{
    int rc = t->optim ? plait_checkpoint_load(path, t->anyway, t->done,
                                              t->optim, err)
                      : plait_checkpoint_load_weights(path, t->anyway, t->done,
                                                      t->shards, err);

    if (rc == 0 && t->optim && t->done->unknown_run &&
        plait_comm_rank(t->world) == 0)
        fprintf(stderr,
                "plait-train: %s: it was saved by an earlier version, without "
                "the settings and data of its run, which are not compared\n",
                path);
    return rc;
}

static void report_passed(const struct target *t, const struct found *found)
{
    if (found->passed && plait_comm_rank(t->world) == 0)
        fprintf(stderr,
                "plait-train: %s: ignored checkpoints newer than 'latest': "
                "%d, of an abandoned run; use --resume DIR to take one\n",
                t->dir, found->passed);
}

/* Load the newest complete checkpoint; 1: there is none of any kind. Those that
 * are passed over are reported on stderr. */
static int load_newest(const struct target *t, int64_t below,
                       struct plait_error *err)
{
    struct found found = {.step = below};
    int skipped = 0;

    for (;; skipped++) {
        if (find_checkpoint(t, found.step, &found, err) < 0)
            return -1;
        if (skipped == 0 && below == INT64_MAX)
            report_passed(t, &found);
        if (!found.path[0])
            break;
        if (load_state(t, found.path, err) == 0)
            return 0;
        if (errno != EBADMSG)
            return -1;
        if (err->text[0])
            fprintf(stderr,
                    "plait-train: checkpoint of step %" PRId64 " skipped: %s\n",
                    found.step, err->text);
        err->text[0] = '\0';
    }
    if (skipped + found.passed == 0 && below == INT64_MAX)
        return 1;
    if (below < INT64_MAX)
        plait_errorf(err,
                     "%s: no usable checkpoint is left before step %" PRId64
                     "; those above are not finite; use --resume none to "
                     "start anew",
                     t->dir, below);
    else if (skipped > 0)
        plait_errorf(err,
                     "%s: none of the %d checkpoints is complete; use "
                     "--resume none to start anew",
                     t->dir, skipped);
    else
        plait_errorf(err,
                     "%s: the checkpoint that 'latest' names and all before "
                     "it are gone; use --resume DIR to take another, or "
                     "--resume none to start anew",
                     t->dir);
    return plait_error_consensus(t->world, -1, err);
}

int plait_resume_check_anyway(const char *keys, struct plait_error *err)
{
    char key[64];
    size_t n;

    for (; *keys; keys += n + (keys[n] == ',')) {
        n = strcspn(keys, ",");
        snprintf(key, sizeof(key), "%.*s", (int)(n < 63 ? n : 63), keys);
        errno = EINVAL;
        if (plait_settings_shapes(key))
            return plait_errorf(err,
                                "--resume-anyway: another %s means weights of "
                                "other shapes, with which no checkpoint goes "
                                "on",
                                key);
        if (strcmp(key, PLAIT_RESUME_DATA) != 0 &&
            !plait_settings_has_key(key)) {
            errno = EINVAL;
            return plait_errorf(err,
                                "--resume-anyway: '%s' is not a setting that "
                                "is compared with a checkpoint's; see "
                                "plait-train(1)",
                                key);
        }
    }
    return 0;
}

int plait_resume_check_data(const struct plait_checkpoint_info *done,
                            const struct plait_data_identity *now,
                            const char *anyway, struct plait_error *err)
{
    const struct plait_data_identity *then = &done->data;

    if (!then->bytes ||
        (then->bytes == now->bytes && then->hash == now->hash) ||
        plait_identity_is_allowed(anyway, PLAIT_RESUME_DATA))
        return 0;
    errno = EINVAL;
    return plait_errorf(
        err,
        "the checkpoint of step %" PRId64 " was trained on other data: %" PRId64
        " bytes, hash %016" PRIx64 "; data.train has %" PRId64 ", %016" PRIx64
        "; use --resume-anyway data.train to go on with it",
        done->step, then->bytes, then->hash, now->bytes, now->hash);
}

int plait_resume(const struct plait_resume_from *from,
                 struct plait_shards *shards, struct plait_optim *optim,
                 struct plait_checkpoint_info *done, struct plait_error *err)
{
    const struct plait_model *model = shards->model;
    const struct target t = {.world = model->mesh->world,
                             .dir = model->config->checkpoint.dir,
                             .fallback = model->config->checkpoint.fallback,
                             .anyway = from->anyway,
                             .shards = shards,
                             .optim = optim,
                             .done = done};
    struct found found;

    if (strcmp(from->what, "auto") != 0 && strcmp(from->what, "none") != 0)
        return find_given(&t, from->what, &found, err) < 0
                   ? -1
                   : load_state(&t, found.path, err);
    if (!strcmp(from->what, "auto") && t.dir)
        return load_newest(&t, from->below, err);
    return 1;
}

/* *replicas becomes -1 if the checkpoint cannot be read. */
static int read_replicas(const char *path, int *replicas,
                         struct plait_error *err)
{
    struct plait_manifest manifest;
    size_t size;
    char *text;
    int rc;

    *replicas = -1;
    if (plait_manifest_text(path, &text, &size, err) < 0)
        return -1;
    rc = plait_manifest_parse(path, text, size, &manifest, err);
    free(text);
    if (rc < 0)
        return -1;
    *replicas = manifest.replicas;
    free(manifest.files);
    return 0;
}

/* Rank 0 reads it for all ranks. */
static int share_replicas(struct plait_comm *world, const char *path,
                          int *replicas, struct plait_error *err)
{
    if (plait_comm_rank(world) == 0)
        read_replicas(path, replicas, err);
    if (plait_comm_host_broadcast(world, replicas, sizeof(*replicas), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    return 0;
}

int plait_resume_replicas(const char *resume, const struct plait_job_config *c,
                          struct plait_comm *world, int *replicas,
                          struct plait_error *err)
{
    const struct target t = {.world = world,
                             .dir = c->checkpoint.dir,
                             .fallback = c->checkpoint.fallback};
    struct found found = {.step = INT64_MAX};

    *replicas = 0;
    if (!strcmp(resume, "none") || (!strcmp(resume, "auto") && !t.dir))
        return 0;
    if (strcmp(resume, "auto") != 0) {
        if (find_given(&t, resume, &found, err) < 0 ||
            share_replicas(world, found.path, replicas, err) < 0)
            return -1;
        return plait_error_consensus(world, *replicas < 0 ? -1 : 0, err);
    }
    do { /* plait_resume() will report unreadable ones */
        err->text[0] = '\0';
        if (find_checkpoint(&t, found.step, &found, err) < 0)
            return -1;
        *replicas = 0;
        if (found.path[0] &&
            share_replicas(world, found.path, replicas, err) < 0)
            return -1;
    } while (*replicas < 0);
    err->text[0] = '\0';
    return 0;
}
