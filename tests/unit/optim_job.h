/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_OPTIM_JOB_H
#define PLAIT_TESTS_OPTIM_JOB_H

#include "runtime/optim/optim.h"

/* A model and its optimizer in one process, for tests of the step alone. */
struct optim_job {
    struct plait_job_config *config;
    struct plait_mesh *mesh;
    struct plait_model *model;
    struct plait_optim *optim;
    const struct plait_optim_slice *slices;
    int nslices;
};

/* Takes over `config`; NULL, which a parser returned, fails and leaves *err as
 * it is. -1: nothing is to be closed; a test ends then. */
int optim_job_open(struct optim_job *job, struct plait_job_config *config,
                   const struct plait_ops *ops, int threads, uint64_t seed,
                   struct plait_error *err);
void optim_job_close(struct optim_job *job);

#endif
