/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_CHECKPOINT_UTIL_H
#define PLAIT_TESTS_UNIT_CHECKPOINT_UTIL_H

#include <stdatomic.h>

#include "model_util.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/optim/optim.h"

/* What the tests of checkpoints share. */

/* All of the test's ranks, and a directory that they share. */
extern struct plait_comm *world;
extern int rank, size;
extern char dir[64];

/* Opens the world, of MPI or of one rank, and makes the directory. 0 or -1. */
int test_open(int mpi);
/* Removes both. */
int test_close(void);

/* "DIR/NAME"; good until the next but one. */
char *in_dir(const char *name);
void until_there(const char *path);

/* A disk that is as slow as a test wants it: fsync() waits while the gate is
 * shut. */
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

/* Every element with a value of its own by its place in the whole model, or
 * with `wrong` where that is not 0. */
void fill(struct job *job, float wrong);
int is_filled(struct job *job);
/* The weights are, and the moments are all `wrong`. */
int has_weights_alone(struct job *job, float wrong);

int save(struct job *job, int64_t step, int keep, struct plait_error *err);
int load(struct job *job, const char *name, struct plait_error *err);
/* Although these settings differ. */
int load_anyway(struct job *job, const char *name, const char *keys,
                struct plait_error *err);
/* The newest below a step, or what was said instead. Good until the next. */
const char *newest(const char *in, int64_t below, int64_t *step);

struct plait_saver *saver(struct job *job, const char *where);
int start_save(struct plait_saver *s, int64_t step, struct plait_error *err);
/* As a run does between its steps: until there is an outcome. 1: none. */
int poll_until(struct plait_saver *s, const char *path,
               struct plait_error *err);

#endif
