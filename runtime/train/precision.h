/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_PRECISION_H
#define PLAIT_RUNTIME_TRAIN_PRECISION_H

#include "runtime/mesh/mesh.h"
#include "topology/job/job_config.h"

/* Have the rank's device compute in train.precision. -1 with ENOTSUP, naming
 * what it can do, where it cannot. */
int plait_precision_set(struct plait_mesh *mesh, enum plait_precision precision,
                        struct plait_error *err);

#endif
