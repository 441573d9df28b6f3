/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_START_RECORD_H
#define PLAIT_RUNTIME_TRAIN_START_RECORD_H

#include "runtime/train/metrics/goodput.h"
#include "runtime/train/session.h"
#include "topology/base/error.h"

/* A description of the run beside its metrics: each start adds one JSON object,
 * on a line, to the file METRICS.starts. */
struct plait_start_record {
    const struct plait_session *s;
    const double *nodes; /* [ranks] equal where ranks share a node */
    const char *config;  /* YAML, with what --set changed */
    int64_t step;        /* done before; 0: a new file */
    const struct plait_past *past;
    int64_t parameters;
    double peak; /* FLOP/s of all ranks */
};

/* Does nothing where `metrics` is no regular file, such as a pipe. */
int plait_start_record_write(const char *metrics,
                             const struct plait_start_record *record,
                             struct plait_error *err);

#endif
