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
    /* The shares of a step that products, and attention, took; 0: not
     * recorded. */
    double products, attention;
    /* For a run on CPUs: ranks of a node, threads of each, cores of a node; the
     * measured FLOP/s of all its ranks' products; and whether the shares are of
     * processor time, so that other ranks are not in them. */
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

/* Set what runs on CPUs show without a fit: cores, the rate of their products,
 * how many ranks a node has. */
void calibrate_processors(const struct calibrate_runs *runs,
                          struct plait_gpu_type *gpu);
/* For a run on CPUs: the rate of its products per core that it used, relative
 * to the highest of the runs in both lists that have its precision; 1 where
 * that is unknown. A run far below 1 had other processes on its cores. */
double calibrate_share(const struct calibrate_run *run,
                       const struct calibrate_runs *runs,
                       const struct calibrate_runs *others);
/* Fit the constants of *gpu to all runs except `without` (-1: to all).
 * Constants that the runs do not determine stay as they are. */
void calibrate_fit(const struct calibrate_runs *runs, int without,
                   struct plait_gpu_type *gpu);
/* A constant's name in a site file, and its value there; NULL: it is not fitted
 * for such a type. */
const char *calibrate_constant_name(const struct plait_gpu_type *gpu, int k);
double calibrate_constant(const struct plait_gpu_type *gpu, int k);

#endif
