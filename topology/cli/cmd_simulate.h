/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CMD_SIMULATE_H
#define PLAIT_TOPOLOGY_CLI_CMD_SIMULATE_H

#include <jansson.h>
#include <stdio.h>

#include "topology/cli/cmd_model.h"
#include "topology/predict/estimate.h"
#include "topology/predict/simulate.h"

/* One run of `plait simulate`: its options and results. */
struct simulate_job {
    struct model_options options;
    struct model_job model;
    const char *svg_file;
    const char *slow[16]; /* as given */
    int nslow;
    struct plait_estimate estimate;
    struct plait_simulation_request request;
    struct plait_stage_time *times;
    double *slow_rank, *slow_link; /* [pp] */
    struct plait_simulation *simulation;
    double undisturbed; /* the step without --slow, in seconds */
};

/* The bubble of equal stages by the formulas of the literature, as a share of
 * the step. */
double simulate_ideal_bubble(const struct plait_simulation *simulation);

/* columns: how wide the timeline may be. */
void simulate_print_text(const struct simulate_job *job, int columns,
                         FILE *out);
void simulate_print_svg(const struct simulate_job *job, FILE *out);
/* A new reference; NULL: out of memory. */
json_t *simulate_to_json(const struct simulate_job *job);

#endif
