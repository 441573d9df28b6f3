/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_CHECKPOINT_UTIL_H
#define PLAIT_TESTS_UNIT_CHECKPOINT_UTIL_H

#include <stdatomic.h>

#include "model_util.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/optim/optim.h"

/* What the tests of checkpoints share. */

/* All ranks of the test, and a directory that they share. */
extern struct plait_comm *world;
extern int rank, size;
extern char dir[];

/* Opens the world, of MPI or of one rank, and makes the directory. 0 or -1. */
int test_open(int mpi);
/* Destroys the world and removes the directory. */
int test_close(void);

/* "DIR/NAME"; valid until the next call but one. */
char *in_dir(const char *name);
void until_there(const char *path);

/* Simulates a slow disk: fsync() waits while the gate is shut. */
extern atomic_bool gate_shut;

/* A model in a layout; ranks outside of it have no model. */
struct job {
    struct plait_job_config config;
    struct plait_device *dev;
    struct plait_comm *comm;
    struct plait_mesh *mesh;
    struct plait_model *model;
    struct plait_optim *optim;
};

/* 1: this rank is inside, 0: outside, -1: failed. */
int start(struct job *job, enum plait_family family, int layers, int tp, int pp,
          int dp, int zero);
void stop(struct job *job);

/* Gives every element a value that depends on its place in the whole model, or
 * `wrong` if that is not 0. */
void fill(struct job *job, float wrong);
int is_filled(struct job *job);
/* Whether the weights are as fill() made them, and the moments all `wrong`. */
int has_weights_alone(struct job *job, float wrong);

int save(struct job *job, int64_t step, int keep, struct plait_error *err);
int load(struct job *job, const char *name, struct plait_error *err);
/* Loads although these settings differ. */
int load_anyway(struct job *job, const char *name, const char *keys,
                struct plait_error *err);
/* Returns the newest checkpoint before a step, or the error's text. Valid until
 * the next call. */
const char *newest(const char *in, int64_t below, int64_t *step);

struct plait_saver *saver(struct job *job, const char *where);
int start_save(struct plait_saver *s, int64_t step, struct plait_error *err);
/* Polls, as a run does between its steps, until the save has succeeded or
 * failed. 1: no save was under way. */
int poll_until(struct plait_saver *s, const char *path,
               struct plait_error *err);

#endif
