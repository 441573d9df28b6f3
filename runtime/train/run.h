/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_RUN_H
#define PLAIT_RUNTIME_TRAIN_RUN_H

#include "runtime/train/session.h"

/* What plait-train does once its ranks have met. Collective. How it ends: */
enum {
    PLAIT_RUN_GOOD = 0,
    PLAIT_RUN_FAILED = -1, /* all ranks together: they may end in order, with
                              text on at most one of them */
    PLAIT_RUN_BROKEN = -2, /* this rank, where others may wait for it */
    PLAIT_RUN_BACK = 1     /* of a step: the run has gone back to an earlier
                              checkpoint */
};

/* Refuses a configuration that the runtime cannot carry out, rather than
 * ignoring a part of it. Local. */
int plait_run_supported(const struct plait_job_config *config,
                        const struct plait_ops *ops, struct plait_error *err);

int plait_run_train(struct plait_session *s,
                    const struct plait_train_args *args,
                    struct plait_error *err);
/* After a failure, behind what was wrong on stderr: from which checkpoint
 * another start of the run goes on. Any thread may call it; it does nothing
 * where no step was begun. */
void plait_run_say_again(const struct plait_session *s,
                         const struct plait_train_args *args);
int plait_run_sample(struct plait_session *s,
                     const struct plait_train_args *args,
                     struct plait_error *err);

#endif
