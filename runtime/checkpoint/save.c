/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_private.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/comm/consensus.h"
#include "runtime/trace/activity.h"
#include "topology/base/clock.h"
#include "topology/base/thread.h"

/* The writing thread does not communicate: whatever the ranks must agree on is
 * agreed between steps, by the training thread. */

struct plait_saver {
    const struct plait_model *model;
    struct plait_comm *world;
    struct plait_replicas *replicas; /* NULL: one model */
    char *dir, *fallback;            /* fallback: NULL: none */
    int keep;
    struct plait_error notice; /* "": nothing to say */
    struct plait_rank_shard shard;
    char *image; /* of the shard's file; NULL: none for plait_saver_start() */

    /* The checkpoint that is being written. */
    bool open;   /* the same on all ranks */
    bool copied; /* it is written from the copy */
    bool placed; /* all shards are written, and rank 0 is putting them in place;
                    the same on all ranks */
    struct plait_checkpoint_info info;
    int64_t sent[PLAIT_SYNC_FRAGMENTS_MOST]; /* by the replicas */
    char *temporary, *path, *in;             /* in: dir or fallback */
    int made;      /* rank 0's descriptor of `temporary`, -1: none */
    bool threaded; /* a thread is to be joined */
    pthread_t thread;
    atomic_bool cancel, done;
    /* Used by the thread alone until it is done. */
    double begun, ended;
    struct plait_shard_file file, *files; /* files: of all ranks, in `placed` */
    struct plait_error why;
    struct plait_error left; /* what could not be removed */
    int rc, number;          /* the outcome: 0 or -1, and errno */
};

static bool is_first(const struct plait_saver *s)
{
    return plait_comm_rank(s->world) == 0;
}

/* -- one rank's shard ----------------------------------------------------- */

static void write_part(struct plait_saver *s, const char *image)
{
    s->begun = plait_clock_now();
    s->rc = plait_rank_shard_write(&s->shard, image, s->temporary,
                                   plait_comm_rank(s->world), &s->cancel,
                                   &s->file, &s->why);
    s->number = errno;
    s->ended = plait_clock_now();
    atomic_store(&s->done, true);
}

static void *write_aside(void *saver)
{
    struct plait_saver *s = saver;

    write_part(s, s->image);
    return NULL;
}

static int start_thread(struct plait_saver *s, void *(*run)(void *),
                        struct plait_error *err)
{
    s->threaded = plait_thread_create(&s->thread, run, s) == 0;
    if (s->threaded)
        return 0;
    return plait_errorf(err,
                        "checkpoint: cannot start the thread that writes "
                        "it: %s",
                        strerror(errno));
}

static void join_thread(struct plait_saver *s)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = false;
}

/* Note that this rank's shard will not be written. */
static void fail_part(struct plait_saver *s, const struct plait_error *err)
{
    s->rc = -1;
    s->number = errno;
    s->why = *err;
    s->begun = s->ended = plait_clock_now();
    atomic_store(&s->done, true);
}

/* The outcome of this rank's shard, once it is done. ECANCELED is no error of
 * its own: it was canceled because another rank failed, which reports it. */
static int part_outcome(const struct plait_saver *s, struct plait_error *err)
{
    if (s->rc == 0 || s->number == ECANCELED)
        return 0;
    errno = s->number;
    return plait_errorf(err, "%s", s->why.text);
}

/* -- all of them --------------------------------------------------------- */

static void forget_checkpoint(struct plait_saver *s)
{
    if (s->made >= 0)
        close(s->made);
    s->made = -1;
    free(s->temporary);
    free(s->path);
    free(s->files);
    s->temporary = s->path = NULL;
    s->files = NULL;
    s->open = s->placed = false;
}

/* Not collective: remove the unfinished checkpoint; older ones stay. */
static void abandon_checkpoint(struct plait_saver *s)
{
    int saved = errno;

    atomic_store(&s->cancel, true);
    join_thread(s);
    if (s->made >= 0 && plait_directory_check(s->made, s->temporary, NULL) == 0)
        plait_directory_remove(s->temporary);
    forget_checkpoint(s);
    errno = saved;
}

/* Make the temporary directory. The directory above existed when the run began,
 * so that it is reported if it is gone. */
static int prepare_directory(struct plait_saver *s, struct plait_error *err)
{
    bool missing = access(s->in, F_OK) < 0 && errno == ENOENT;

    s->made = plait_directory_prepare(s->in, s->temporary, err);
    if (s->made < 0)
        return -1;
    if (missing)
        plait_errorf(&s->notice,
                     "%s was removed together with its checkpoints; it is "
                     "made again",
                     s->in);
    return 0;
}

/* Collective, like all below. Rank 0 makes the hidden directory in s->in. */
static int open_directory(struct plait_saver *s, struct plait_error *err)
{
    int rc = 0;

    s->temporary = plait_directory_temporary(s->in, s->info.step);
    s->path = plait_checkpoint_path(s->in, s->info.step);
    atomic_store(&s->cancel, false);
    atomic_store(&s->done, false);
    if (!s->temporary || !s->path)
        rc = plait_errorf(err, "%s: out of memory", s->in);
    if (rc == 0 && s->replicas && plait_replicas_settle(s->replicas) < 0)
        rc = plait_errorf(err, "checkpoint: %s",
                          plait_queue_error(s->model->mesh->q));
    if (rc == 0 && is_first(s))
        rc = prepare_directory(s, err);
    if (plait_error_consensus(s->world, rc, err) < 0) {
        abandon_checkpoint(s);
        return -1;
    }
    s->open = true;
    return 0;
}

/* Rank 0 gathers the description of all shards. */
static int gather_files(struct plait_saver *s, struct plait_error *err)
{
    int rc = 0;

    s->files = calloc(plait_comm_size(s->world), sizeof(*s->files));
    if (!s->files)
        rc = plait_errorf(err, "%s: out of memory", s->dir);
    rc = plait_error_consensus(s->world, rc, err);
    if (rc == 0 && plait_comm_host_all_gather(s->world, &s->file, s->files,
                                              sizeof(*s->files)) < 0)
        rc = plait_errorf(err, "checkpoint: %s", plait_comm_error(s->world));
    return rc;
}

static void *place_aside(void *saver)
{
    struct plait_saver *s = saver;
    const struct plait_checkpoint_placement place = {
        .model = s->model,
        .replicas = s->replicas ? plait_replicas_count(s->replicas) : 0,
        .sent = s->sent,
        .info = s->info,
        .dir = s->in,
        .temporary = s->temporary,
        .path = s->path,
        .made = s->made,
        .files = s->files,
        .nfiles = plait_comm_size(s->world),
        .keep = s->keep};

    s->rc = plait_checkpoint_place(&place, &s->left, &s->why);
    s->number = errno;
    atomic_store(&s->done, true);
    return NULL;
}

/* Rank 0 puts the checkpoint in place: with `aside` in a thread while training
 * goes on, as syncing and removing an old checkpoint may take long. */
static void start_placing(struct plait_saver *s, bool aside)
{
    s->placed = true;
    s->rc = 0;
    if (!is_first(s))
        return;
    atomic_store(&s->done, false);
    if (!aside || start_thread(s, place_aside, NULL) < 0)
        place_aside(s);
}

/* All ranks have written their shards. */
static int end_parts(struct plait_saver *s, struct plait_error *err)
{
    int rc;

    join_thread(s);
    rc = plait_error_consensus(s->world, part_outcome(s, err), err);
    plait_activity_beside(&s->model->mesh->listeners, "checkpoint", "write",
                          s->begun, s->ended);
    return rc == 0 ? gather_files(s, err) : -1;
}

static int end_placing(struct plait_saver *s, struct plait_error *err)
{
    join_thread(s);
    if (s->left.text[0])
        s->notice = s->left;
    s->left.text[0] = '\0';
    return plait_error_consensus(s->world, part_outcome(s, err), err);
}

/* With `aside`, takes at most one of the two steps that may be left. */
static int commit_once(struct plait_saver *s, bool aside,
                       struct plait_error *err)
{
    int rc = 0, saved;

    if (!s->placed) {
        rc = end_parts(s, err);
        if (rc == 0)
            start_placing(s, aside);
        if (rc == 0 && aside)
            return 0;
    }
    if (rc == 0)
        rc = end_placing(s, err);
    saved = errno;
    if (rc < 0)
        abandon_checkpoint(s);
    else
        forget_checkpoint(s);
    errno = saved;
    return rc;
}

/* Save again, to the second directory, what is still in the copy or, without
 * one, in the model, as training has not gone on. Rank 0 reports it. */
static int use_fallback(struct plait_saver *s, const struct plait_error *why,
                        struct plait_error *err)
{
    struct plait_error text = *why;

    s->in = s->fallback;
    if (open_directory(s, err) < 0)
        return -1;
    write_part(s, s->copied ? s->image : NULL);
    if (commit_once(s, false, err) < 0)
        return -1;
    if (text.text[0])
        plait_errorf(&s->notice, "%.300s; saved in checkpoint.fallback %s",
                     text.text, s->fallback);
    return 0;
}

static int commit_checkpoint(struct plait_saver *s, bool aside,
                             struct plait_error *err)
{
    int rc = commit_once(s, aside, err);

    if (rc < 0 && s->fallback && s->in == s->dir && plait_saver_may_retry(s)) {
        struct plait_error why = *err;

        err->text[0] = '\0';
        rc = use_fallback(s, &why, err);
    }
    return rc;
}

/* -- the interface ------------------------------------------------------- */

struct plait_saver *plait_saver_create(const char *dir, int keep, bool async,
                                       struct plait_model *model,
                                       struct plait_optim *optim,
                                       struct plait_error *err)
{
    struct plait_comm *world = model->mesh->world;
    struct plait_saver *s = calloc(1, sizeof(*s));
    struct plait_error unasked;
    int rc;

    err = err ? err : &unasked;
    if (s) {
        s->made = -1;
        s->dir = strdup(dir);
    }
    rc = s && s->dir ? 0 : plait_errorf(err, "checkpoint: out of memory");
    /* Checked before training, because a failure at the first save is too
     * late. */
    if (rc == 0 && plait_comm_rank(world) == 0)
        rc = plait_directory_make(dir, err);
    if (plait_error_consensus(world, rc, err) < 0)
        goto error;
    s->model = model;
    s->world = world;
    s->keep = keep;
    s->replicas = plait_optim_replicas(optim);
    if (plait_rank_shard_init(&s->shard, model, optim, err) < 0)
        goto error;
    rc = 0;
    if (async && !(s->image = plait_rank_shard_image(&s->shard)))
        rc = plait_errorf(err,
                          "checkpoint.async: out of memory: the copy that is "
                          "written while training goes on has %zu bytes",
                          s->shard.bytes);
    if (plait_error_consensus(world, rc, err) < 0)
        goto error;
    return s;
error:
    plait_saver_destroy(s);
    return NULL;
}

void plait_saver_destroy(struct plait_saver *s)
{
    int saved = errno;

    if (!s)
        return;
    if (s->open)
        abandon_checkpoint(s);
    plait_rank_shard_clear(&s->shard);
    free(s->image);
    free(s->dir);
    free(s->fallback);
    free(s);
    errno = saved;
}

int plait_saver_set_fallback(struct plait_saver *s, const char *dir,
                             struct plait_error *err)
{
    int rc = 0;

    s->fallback = strdup(dir);
    if (!s->fallback)
        rc = plait_errorf(err, "checkpoint: out of memory");
    else if (is_first(s))
        rc = plait_directory_make(dir, err);
    return plait_error_consensus(s->world, rc, err);
}

bool plait_saver_notice(struct plait_saver *s, char *text, size_t size)
{
    bool any = s->notice.text[0];

    snprintf(text, size, "%s", s->notice.text);
    s->notice.text[0] = '\0';
    return any;
}

bool plait_saver_may_retry(const struct plait_saver *s)
{
    return errno != EDOM && errno != EINPROGRESS &&
           !plait_comm_failed(s->world);
}

int plait_saver_check(struct plait_saver *s, struct plait_error *err)
{
    int rc = 0;

    if (s->replicas && plait_replicas_settle(s->replicas) < 0)
        rc = plait_errorf(err, "checkpoint: %s",
                          plait_queue_error(s->model->mesh->q));
    if (rc == 0)
        rc = plait_rank_shard_check(&s->shard, err);
    return plait_error_consensus(s->world, rc, err);
}

/* Begin in the first directory; if that cannot even be made, in the second. */
static int begin(struct plait_saver *s,
                 const struct plait_checkpoint_info *info,
                 struct plait_error *err)
{
    s->info = *info;
    if (s->replicas && plait_replicas_sent(s->replicas))
        memcpy(s->sent, plait_replicas_sent(s->replicas), sizeof(s->sent));
    s->in = s->dir;
    if (open_directory(s, err) == 0)
        return 0;
    if (!s->fallback || !plait_saver_may_retry(s))
        return -1;
    if (err->text[0])
        plait_errorf(&s->notice, "%.300s; using checkpoint.fallback %s",
                     err->text, s->fallback);
    s->in = s->fallback;
    return open_directory(s, err);
}

int plait_saver_start(struct plait_saver *s,
                      const struct plait_checkpoint_info *info,
                      struct plait_error *err)
{
    struct plait_error unasked;
    int rc;

    err = err ? err : &unasked;
    if (plait_saver_finish(s, err) < 0 || begin(s, info, err) < 0)
        return -1;
    s->copied = true;
    rc = plait_rank_shard_copy(&s->shard, plait_rank_shard_data(s->image), err);
    if (rc == 0)
        rc = start_thread(s, write_aside, err);
    if (rc < 0)
        fail_part(s, err);
    if (plait_error_consensus(s->world, rc, err) == 0)
        return 0;
    atomic_store(&s->cancel, true);
    /* The copy may be incomplete; training has not gone on, so the fallback can
     * get the state itself. */
    s->copied = false;
    return commit_checkpoint(s, false, err);
}

int plait_saver_poll(struct plait_saver *s, struct plait_error *err)
{
    struct plait_error unasked;
    double state[2] = {0, 0}; /* some rank writes, some rank has failed */

    err = err ? err : &unasked;
    if (!s->open)
        return 0;
    if (!atomic_load(&s->done))
        state[0] = 1;
    else if (s->rc < 0)
        state[1] = 1;
    if (plait_comm_host_all_reduce(s->world, state, 2, PLAIT_MAX) < 0)
        return plait_errorf(err, "checkpoint: %s", plait_comm_error(s->world));
    if (state[1] > 0)
        atomic_store(&s->cancel, true);
    else if (state[0] > 0)
        return 0;
    return commit_checkpoint(s, true, err);
}

int plait_saver_finish(struct plait_saver *s, struct plait_error *err)
{
    struct plait_error unasked;

    return s->open ? commit_checkpoint(s, false, err ? err : &unasked) : 0;
}

int plait_saver_save(struct plait_saver *s,
                     const struct plait_checkpoint_info *info,
                     struct plait_error *err)
{
    struct plait_error unasked;

    err = err ? err : &unasked;
    if (plait_saver_finish(s, err) < 0 || begin(s, info, err) < 0)
        return -1;
    s->copied = false;
    write_part(s, NULL);
    return commit_checkpoint(s, false, err);
}
