/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_LOG_H
#define PLAIT_RUNTIME_TRAIN_LOG_H

#include "runtime/model/model.h"
#include "runtime/optim/histogram.h"
#include "runtime/train/metrics/goodput.h"
#include "runtime/train/metrics/metrics.h"
#include "runtime/train/session.h"
#include "runtime/train/start_record.h"

/* Where rank 0 reports its steps to: whichever of log.metrics,
 * log.tensorboard and log.prometheus are given. */
struct plait_log;

/* `start` describes the run, all but its configuration's text, which is made
 * here. Its session must outlive the log. */
struct plait_log *plait_log_create(const struct plait_start_record *start,
                                   const struct plait_train_args *args,
                                   struct plait_error *err);
int plait_log_write(struct plait_log *log, const struct plait_metrics *m,
                    struct plait_error *err);
/* Writes the histograms of step `step`; only with log.tensorboard. */
int plait_log_histograms(struct plait_log *log, int64_t step,
                         const struct plait_histograms *h,
                         struct plait_error *err);
void plait_log_destroy(struct plait_log *log);

#endif
