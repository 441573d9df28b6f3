/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_REPORT_H
#define PLAIT_RUNTIME_TRAIN_REPORT_H

#include "runtime/model/model.h"
#include "runtime/train/session.h"

/* What a run says about itself besides its steps. */

/* What has been reported, so that it is reported once. Zeroed: nothing. */
struct plait_report {
    bool graphs_failed;
    bool remarked;
};

/* On stdout, before the first step: model, layout, `peak` FLOP/s of all ranks
 * that MFU counts against, and the step `done` that the run goes on after (0:
 * from the start). For rank 0. */
void plait_report_start(const struct plait_session *s,
                        const struct plait_model *model, double peak,
                        int64_t done);

/* On stderr, after a step: graph capture that the device refused, and what
 * its queue has to remark. For every rank. */
void plait_report_changes(struct plait_report *report,
                          const struct plait_mesh *mesh);

#endif
