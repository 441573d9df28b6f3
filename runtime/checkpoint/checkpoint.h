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

/* What tells one set of data from another: the bytes of all files, and a hash
 * of their sizes and of how each begins. 0 bytes: not known. */
struct plait_data_identity {
    int64_t bytes;
    uint64_t hash;
};

struct plait_checkpoint_info {
    int64_t step;                       /* steps done */
    int64_t tokens;                     /* tokens seen */
    struct plait_run_state state;       /* without samples: of an earlier
                                           version */
    struct plait_loss_scale loss_scale; /* used where it is dynamic */
    struct plait_data_identity data;    /* that it was trained on */
    bool unknown_run; /* when loaded: of an earlier version, which did not say
                         with which settings */
};

/* The saves of one run, one after the other. Every function but destroy is
 * collective over the world, and fails on all ranks together, as
 * plait_error_consensus() does. What fails, or ends with the process, leaves
 * older checkpoints as they were. */
struct plait_saver;

/* Makes `dir`. Only one copy of each slice is written. Keeps the newest `keep`
 * checkpoints (0: all) of no later step than the one that was saved. With
 * `async`, memory of the host is taken for a copy of what this rank
 * writes. */
struct plait_saver *plait_saver_create(const char *dir, int keep, bool async,
                                       struct plait_model *model,
                                       struct plait_optim *optim,
                                       struct plait_error *err);
void plait_saver_destroy(struct plait_saver *saver);

/* A second directory, for what cannot be written to the first. Makes it. */
int plait_saver_set_fallback(struct plait_saver *saver, const char *dir,
                             struct plait_error *err);

/* What happened that is no failure, such as a checkpoint that went to the
 * fallback, into text [size]; false: nothing since the last call, or it is
 * another rank's to say. Not collective. */
bool plait_saver_notice(struct plait_saver *saver, char *text, size_t size);

/* Whether all that a checkpoint would have now is finite; -1 with EDOM, and on
 * one rank what is not. */
int plait_saver_check(struct plait_saver *saver, struct plait_error *err);

/* The checkpoint is in place on return. errno is EDOM if what it would have is
 * not finite; this and a broken communicator apart, the next one may succeed
 * (plait_saver_may_retry()). */
int plait_saver_save(struct plait_saver *saver,
                     const struct plait_checkpoint_info *info,
                     struct plait_error *err);

/* The state is copied on return, and training may go on: a thread writes the
 * copy, and then puts the checkpoint in place. That it is there, one of the
 * polls after that learns, or the finish.
 * Waits for one that is still written. Wants `async`. */
int plait_saver_start(struct plait_saver *saver,
                      const struct plait_checkpoint_info *info,
                      struct plait_error *err);
/* Between steps: have what all ranks have written put in place. Does not wait
 * for the disk. */
int plait_saver_poll(struct plait_saver *saver, struct plait_error *err);
/* Wait for what is still written, and put it in place. */
int plait_saver_finish(struct plait_saver *saver, struct plait_error *err);

/* After a failed save, by errno and the communicator: whether it was the disk
 * that failed. */
bool plait_saver_may_retry(const struct plait_saver *saver);

/* The checkpoint under `dir` of the newest step before `below`, whole or
 * not; NULL with err->text empty if there is none (a missing dir is none).
 * *step is its step. DIR/latest leads to the one that was saved last: those of
 * later steps are of a run that was left for an older checkpoint. They stay,
 * do not count, and *passed is how many there are. Caller frees. */
char *plait_checkpoint_newest(const char *dir, int64_t below, int64_t *step,
                              int *passed, struct plait_error *err);

/* Collective; fails as plait_error_consensus() does. Fills optimizer slices and
 * info; the caller then calls plait_optim_refresh(). errno is EBADMSG, and
 * nothing was touched, if the checkpoint is not whole: lost, cut or corrupt; or
 * it has numbers that are not finite: slices may then have been overwritten.
 * Refuses one of another model, naming the tensor and the shapes, and one of
 * another run, naming the settings (topology/job/settings.h), but for those in
 * `anyway`, "KEY[,KEY]..." or NULL. */
int plait_checkpoint_load(const char *path, const char *anyway,
                          struct plait_checkpoint_info *info,
                          struct plait_optim *optim, struct plait_error *err);
/* The weights alone, for a model that is not trained; the caller then calls
 * plait_shards_gather_weights(). */
int plait_checkpoint_load_weights(const char *path, const char *anyway,
                                  struct plait_checkpoint_info *info,
                                  struct plait_shards *shards,
                                  struct plait_error *err);

/* The weights of another run, to train them further or to use them: `dir` is
 * a Hugging Face directory, a checkpoint, or a directory of checkpoints (the
 * one saved last). To the optimizer's slices, whose other state stays as it is,
 * or with optim NULL to `shards` alone; the caller then calls
 * plait_optim_refresh() or plait_shards_gather_weights(). Collective; fails as
 * plait_error_consensus() does. Refuses a model that computes something else
 * than the configuration's, naming the key. */
int plait_checkpoint_start(const char *dir, struct plait_shards *shards,
                           struct plait_optim *optim, struct plait_error *err);

#endif
