/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_PRECISION_H
#define PLAIT_RUNTIME_TRAIN_PRECISION_H

#include "runtime/mesh/mesh.h"
#include "topology/job/fits.h"

/* Have the rank's device compute in train.precision. -1 with ENOTSUP, naming
 * what it can do, where it cannot. */
int plait_precision_set(struct plait_mesh *mesh, enum plait_precision precision,
                        struct plait_error *err);

/* The kernels of this work fit into the rank's GPU, if it has one. -1 with
 * EINVAL. */
int plait_precision_room(const struct plait_mesh *mesh,
                         const struct plait_job_config *config,
                         enum plait_gpu_work work, struct plait_error *err);

#endif
