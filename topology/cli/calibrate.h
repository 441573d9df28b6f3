/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CALIBRATE_H
#define PLAIT_TOPOLOGY_CLI_CALIBRATE_H

#include "topology/predict/estimate.h"

/* Measured steps, as plait calibrate reads them. */

enum { CALIBRATE_CONSTANTS = 3 };

struct calibrate_run {
    char name[80];
    struct plait_job_config *config;
    struct plait_layout layout;
    double step_s;
};

struct calibrate_runs {
    int n;
    struct calibrate_run *at;
    char gpu[16]; /* type that the runs name; "": none */
};

/* Add the run of a metrics file, or the rows of a table (FILE.csv). */
int calibrate_read(struct calibrate_runs *runs, const char *path,
                   struct plait_error *err);
void calibrate_release(struct calibrate_runs *runs);

/* Whether the run can be predicted at all. */
int calibrate_check(const struct calibrate_run *run,
                    const struct plait_gpu_type *gpu, struct plait_error *err);
double calibrate_predict(const struct calibrate_run *run,
                         const struct plait_gpu_type *gpu);

#endif
