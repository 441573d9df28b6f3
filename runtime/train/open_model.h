/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_OPEN_MODEL_H
#define PLAIT_RUNTIME_TRAIN_OPEN_MODEL_H

#include "runtime/train/inference.h"
#include "runtime/train/session.h"
#include "topology/job/fits.h"

/* The model of a session that was opened for a directory, with its weights; for
 * what work, which the GPU must have room for. Collective; fails as
 * plait_error_consensus() does. The caller destroys it in any case. */
int plait_open_model(struct plait_session *s, const char *dir,
                     enum plait_gpu_work work,
                     struct plait_inference **inference,
                     struct plait_error *err);

#endif
