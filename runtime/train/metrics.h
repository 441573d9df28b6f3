/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_METRICS_H
#define PLAIT_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/parallel/parallel.h"
#include "topology/error.h"

/* What one step is reported as. NaN: nothing to report. */
struct plait_metrics {
    int64_t step; /* from 1 */
    double loss;
    double val_loss;
    double grad_norm;
    double lr;
    int64_t tokens; /* since the run's start */
    double tokens_per_s;
    double mfu;
    double step_s;
    size_t mem_bytes;          /* the most this rank has held */
    size_t host_bytes;         /* the same, offloaded to the host */
    const double *stage_bytes; /* [nstages] */
    int nstages;
    double comm_s;        /* of step_s: computation stood still for messages */
    double comm_hidden_s; /* collectives ran beside it, summed over groups */
    uint64_t comm_bytes[PLAIT_NCOMMS]; /* this rank, this step */
};

/* The metrics file: one JSON object a line, flushed line by line. */
struct plait_metrics_file;

/* With `step` 0 a new file; otherwise the run goes on after `step`, and
 * lines of later steps, from before it was interrupted, are cut off. */
struct plait_metrics_file *plait_metrics_create(const char *path, int64_t step,
                                                struct plait_error *err);
int plait_metrics_write(struct plait_metrics_file *file,
                        const struct plait_metrics *m);
void plait_metrics_destroy(struct plait_metrics_file *file);

#endif
