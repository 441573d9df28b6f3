/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_SETTINGS_H
#define PLAIT_TOPOLOGY_JOB_SETTINGS_H

#include <stdbool.h>
#include <stdio.h>

#include "topology/job/job_config.h"

/* The settings that decide what a run computes: all of the model's, the
 * optimizer's and the rate's, seed, batch and precision. Those of speed,
 * length and files are not among them. */

#define PLAIT_SETTINGS_MOST 200

/* "section.key" and its value as the configuration would write it. */
struct plait_setting {
    char key[48];
    char value[208];
};

struct plait_settings {
    int n;
    struct plait_setting at[PLAIT_SETTINGS_MOST];
};

/* -1 with errno: out of memory. */
int plait_settings_list(const struct plait_job_config *config,
                        struct plait_settings *settings);

/* Print all settings as lines "section.key=value", except those of which a
 * rank may have its own (plait_yaml_field.own). "not given": a vocabulary or
 * data that the configuration does not say. */
void plait_settings_print_all(const struct plait_job_config *config, FILE *out);

/* Whether "section.key" is, or may be, one of them. */
bool plait_settings_has_key(const char *key);

/* Whether another value of "section.key" means weights of other shapes, with
 * which no checkpoint goes on. */
bool plait_settings_shapes(const char *key);

/* Whether train.steps is one: where the rate of a step follows from it. */
bool plait_settings_counts_steps(const struct plait_job_config *config);

/* Its value; NULL if it is not there. */
const char *plait_settings_value(const struct plait_settings *settings,
                                 const char *key);

/* The value that `key` has where it is not given and all others are as in
 * `config`. 0: it has none that is known, as it follows from others or the
 * setting counts at times only; -1 with errno: out of memory. */
int plait_settings_default(const struct plait_job_config *config,
                           const char *key, struct plait_setting *setting);

#endif
