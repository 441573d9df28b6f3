/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_OPTIM_JOB_H
#define PLAIT_TESTS_OPTIM_JOB_H

#include "runtime/optim/optim.h"

/* A model and its optimizer in one process, for tests of single steps. */
struct optim_job {
    struct plait_job_config *config;
    struct plait_mesh *mesh;
    struct plait_model *model;
    struct plait_optim *optim;
    const struct plait_optim_slice *slices;
    int nslices;
};

/* Takes over `config`; NULL, from a parser that failed, fails and leaves *err
 * as it is. -1: the test must end, and there is nothing to close. */
int optim_job_open(struct optim_job *job, struct plait_job_config *config,
                   const struct plait_ops *ops, int threads, uint64_t seed,
                   struct plait_error *err);
void optim_job_close(struct optim_job *job);

#endif
