/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_RUN_H
#define PLAIT_RUNTIME_TRAIN_RUN_H

#include "runtime/train/session.h"

/* What plait-train does once its ranks have met. Collective. 0; -1 if all
 * ranks failed together and may end in order, with text on at most one of
 * them; PLAIT_RUN_BROKEN if this rank failed where others may wait for it. */
#define PLAIT_RUN_BROKEN (-2)

/* Refuses a configuration that the runtime cannot carry out, rather than
 * ignoring a part of it. Local. */
int plait_run_supported(const struct plait_job_config *config,
                        const struct plait_ops *ops, struct plait_error *err);

int plait_run_train(struct plait_session *s,
                    const struct plait_train_args *args,
                    struct plait_error *err);
int plait_run_sample(struct plait_session *s,
                     const struct plait_train_args *args,
                     struct plait_error *err);

#endif
