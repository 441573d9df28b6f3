/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CALIBRATE_H
#define PLAIT_TOPOLOGY_CLI_CALIBRATE_H

#include <stdbool.h>

#include "topology/predict/estimate.h"

/* Measured steps, as plait calibrate reads them, and the constants that are
 * fitted to them. */

enum { CALIBRATE_CONSTANTS = 9 };

struct calibrate_run {
    char name[80];
    struct plait_job_config *config;
    struct plait_layout layout;
    double step_s;
    /* Where the run says so, else 0: shares of its step that products, and
     * attention, took. */
    double products, attention;
    /* Of one on processors: ranks of a node, threads of each, cores of a node;
     * FLOP/s of all its ranks' products, as they were measured; and whether
     * the shares are of processor time, so that other ranks are not in them. */
    int node_ranks, threads, cores;
    double peak;
    bool own_time;
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
void calibrate_estimate(const struct calibrate_run *run,
                        const struct plait_gpu_type *gpu,
                        struct plait_estimate *e);
/* Seconds of a step. */
double calibrate_predict(const struct calibrate_run *run,
                         const struct plait_gpu_type *gpu);

/* What runs on processors say of them without a fit: cores, the rate of their
 * products, how many ranks a node has. */
void calibrate_processors(const struct calibrate_runs *runs,
                          struct plait_gpu_type *gpu);
/* Of one on processors: the rate of its products, for each core that it used,
 * over the highest of the runs in both lists that are as precise; 1 where it is
 * unknown. One far below had other processes on its cores. */
double calibrate_share(const struct calibrate_run *run,
                       const struct calibrate_runs *runs,
                       const struct calibrate_runs *others);
/* Fit the constants of *gpu to all runs but `without` (-1: to all). What the
 * runs do not tell stays as it is. */
void calibrate_fit(const struct calibrate_runs *runs, int without,
                   struct plait_gpu_type *gpu);
/* A constant's name in a site file, and its value there; NULL: it is none that
 * is fitted of such a type. */
const char *calibrate_constant_name(const struct plait_gpu_type *gpu, int k);
double calibrate_constant(const struct plait_gpu_type *gpu, int k);

#endif
