/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/resume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/world.h"

/* What is loaded, and for whom. */
struct target {
    struct plait_comm *world;
    const char *dir; /* checkpoint.dir, NULL: not set */
    struct plait_shards *shards;
    struct plait_optim *optim; /* NULL: the weights alone */
    struct plait_checkpoint_info *done;
};

/* A checkpoint's directory, the same on all ranks. */
struct found {
    int64_t step;
    int passed;      /* others, of a run that was left */
    char path[4096]; /* "": none */
};

/* Rank 0 looks for the newest checkpoint of a step before `below`. */
static int find_checkpoint(const struct target *t, int64_t below,
                           struct found *found, struct plait_error *err)
{
    char *newest = NULL;
    int rc = 0;

    memset(found, 0, sizeof(*found));
    if (plait_comm_rank(t->world) == 0) {
        newest = plait_checkpoint_newest(t->dir, below, &found->step,
                                         &found->passed, err);
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

static int load_state(const struct target *t, const char *path,
                      struct plait_error *err)
{
    return t->optim
               ? plait_checkpoint_load(path, t->done, t->optim, err)
               : plait_checkpoint_load_weights(path, t->done, t->shards, err);
}

static void report_passed(const struct target *t, const struct found *found)
{
    if (found->passed && plait_comm_rank(t->world) == 0)
        fprintf(stderr,
                "plait-train: %s: later checkpoints than the one saved "
                "last (latest) are passed over: %d, of a run that was left; "
                "--resume DIR takes one\n",
                t->dir, found->passed);
}

/* The newest checkpoint that is whole; 1: there is none of any kind. Those
 * that are passed over are reported on stderr. */
static int load_newest(const struct target *t, struct plait_error *err)
{
    struct found found = {.step = INT64_MAX};
    int skipped = 0;

    for (;; skipped++) {
        if (find_checkpoint(t, found.step, &found, err) < 0)
            return -1;
        if (skipped == 0)
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
    if (skipped + found.passed == 0)
        return 1;
    if (skipped > 0)
        plait_errorf(err,
                     "%s: none of the %d checkpoints is whole; "
                     "--resume none starts anew",
                     t->dir, skipped);
    else
        plait_errorf(err,
                     "%s: nothing is left of the checkpoint that latest "
                     "leads to, nor before it; --resume DIR takes another, "
                     "--resume none starts anew",
                     t->dir);
    return plait_error_consensus(t->world, -1, err);
}

int plait_resume(const char *resume, struct plait_shards *shards,
                 struct plait_optim *optim, struct plait_checkpoint_info *done,
                 struct plait_error *err)
{
    const struct plait_model *model = shards->model;
    const struct target t = {.world = model->mesh->world,
                             .dir = model->config->checkpoint.dir,
                             .shards = shards,
                             .optim = optim,
                             .done = done};

    if (strcmp(resume, "auto") != 0 && strcmp(resume, "none") != 0)
        return load_state(&t, resume, err);
    if (!strcmp(resume, "auto") && t.dir)
        return load_newest(&t, err);
    return 1;
}
