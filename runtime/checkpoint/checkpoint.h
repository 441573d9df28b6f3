/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define PLAIT_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/model/model.h"
#include "runtime/optim/optim.h"
#include "runtime/optim/run_state.h"
#include "runtime/parallel/shard.h"

/* A checkpoint is a directory DIR/step-00000020 with one safetensors shard
 * per writing rank and manifest.json, written last. It is made in a hidden
 * temporary directory, every file fsynced, then renamed: a directory with a
 * manifest is complete. DIR/latest is a link to the one saved last. Tensors
 * carry their whole-model name and shape and the slice they hold, so that
 * another layout can read them. */

/* Tells one set of data from another: the bytes of all files, and a hash of
 * their sizes and of how each begins. 0 bytes: not known. */
struct plait_data_identity {
    int64_t bytes;
    uint64_t hash;
};

struct plait_checkpoint_info {
    int64_t step;    /* steps done */
    int64_t tokens;  /* tokens seen */
    int64_t planned; /* train.steps of its run; 0: of an earlier version */
    struct plait_run_state state;       /* .samples 0: of an earlier version */
    struct plait_loss_scale loss_scale; /* used where it is dynamic */
    struct plait_data_identity data;    /* the data it was trained on */
    bool unknown_run; /* when loaded: of an earlier version, which did not save
                         the run's settings */
};

/* The saves of one run, one after the other. Every function but destroy is
 * collective over the world, and fails on all ranks together, as
 * plait_error_consensus() does. A save that fails, or ends with the process,
 * leaves older checkpoints as they were. */
struct plait_saver;

/* Makes `dir`. Only one copy of each slice is written. Keeps the newest `keep`
 * checkpoints (0: all), not counting later steps than the one that was saved.
 * With `async`, allocates host memory for a copy of what this rank writes. */
struct plait_saver *plait_saver_create(const char *dir, int keep, bool async,
                                       struct plait_model *model,
                                       struct plait_optim *optim,
                                       struct plait_error *err);
void plait_saver_destroy(struct plait_saver *saver);

/* A second directory, used where a checkpoint cannot be written to the first.
 * Makes it. */
int plait_saver_set_fallback(struct plait_saver *saver, const char *dir,
                             struct plait_error *err);

/* An event that is no failure, such as a checkpoint that went to the fallback,
 * as text [size]; false: none since the last call, or another rank reports it.
 * Not collective. */
bool plait_saver_notice(struct plait_saver *saver, char *text, size_t size);

/* Whether all that a checkpoint would hold now is finite; -1 with EDOM, and
 * text on one rank that names what is not. */
int plait_saver_check(struct plait_saver *saver, struct plait_error *err);

/* The checkpoint is in place on return. errno is EDOM if the state is not
 * finite and EINPROGRESS if weights are still gathered (plait_optim_settle());
 * except for these and a broken communicator, the next save may succeed
 * (plait_saver_may_retry()). */
int plait_saver_save(struct plait_saver *saver,
                     const struct plait_checkpoint_info *info,
                     struct plait_error *err);

/* The state is copied on return, and training may go on: a thread writes the
 * copy, and then puts the checkpoint in place. A later poll, or the finish,
 * learns that it is in place. Waits for an earlier checkpoint that is still
 * being written. Needs `async`. */
int plait_saver_start(struct plait_saver *saver,
                      const struct plait_checkpoint_info *info,
                      struct plait_error *err);
/* Between steps: once all ranks have written their shards, have the checkpoint
 * put in place. Does not wait for the disk. */
int plait_saver_poll(struct plait_saver *saver, struct plait_error *err);
/* Wait for a checkpoint that is still being written, and put it in place. */
int plait_saver_finish(struct plait_saver *saver, struct plait_error *err);

/* After a failed save, by errno and the communicator: whether it was the disk
 * that failed. */
bool plait_saver_may_retry(const struct plait_saver *saver);

/* The checkpoint under `dir` of the newest step before `below`, complete or
 * not; NULL with err->text empty if there is none (a missing dir is none).
 * *step is its step. DIR/latest leads to the one that was saved last. Those of
 * later steps are of an abandoned run, because a later run went on from an
 * older checkpoint: they stay, do not count, and *passed is how many there are.
 * Caller frees. */
char *plait_checkpoint_newest(const char *dir, int64_t below, int64_t *step,
                              int *passed, struct plait_error *err);
/* The step that DIR/latest names, whether that checkpoint is there or not;
 * INT64_MAX: there is no such link, -1: it leads elsewhere. */
int64_t plait_checkpoint_latest(const char *dir);

/* Collective; fails as plait_error_consensus() does. Fills optimizer slices and
 * info; the caller then calls plait_optim_refresh(). errno is EBADMSG if the
 * checkpoint is missing files, cut or corrupt, when nothing was touched, or if
 * it has numbers that are not finite, when slices may have been overwritten.
 * Refuses a checkpoint of another model, naming the tensor and the shapes, and
 * one of another run, naming the settings (topology/job/settings.h), except for
 * those in `anyway`, "KEY[,KEY]..." or NULL. */
int plait_checkpoint_load(const char *path, const char *anyway,
                          struct plait_checkpoint_info *info,
                          struct plait_optim *optim, struct plait_error *err);
/* The weights alone, for a model that is not trained; the caller then calls
 * plait_shards_gather_weights(). */
int plait_checkpoint_load_weights(const char *path, const char *anyway,
                                  struct plait_checkpoint_info *info,
                                  struct plait_shards *shards,
                                  struct plait_error *err);

/* The weights of another run, to train them further or to use them: `dir` is a
 * Hugging Face directory, a checkpoint, or a directory of checkpoints (the one
 * saved last). They go into the optimizer's slices, whose other state stays as
 * it is, or with optim NULL to `shards` alone; the caller then calls
 * plait_optim_refresh() or plait_shards_gather_weights(). Collective; fails as
 * plait_error_consensus() does. Refuses a model that computes something else
 * than the configuration's, naming the key. */
int plait_checkpoint_start(const char *dir, struct plait_shards *shards,
                           struct plait_optim *optim, struct plait_error *err);

#endif
