/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_FAKE_STEP_H
#define PLAIT_TESTS_UNIT_FAKE_STEP_H

#include "fake_slurm.h"

/* The plugin's arguments in plugstack.conf: "cache=none", and "site=FILE"
 * unless it is "". */
extern char fake_step_cache[256], fake_step_site[256];

/* Reset the fake Slurm, and load the plugin. */
void fake_step_load(spank_context_t context);
/* Load it in slurmstepd, with a valid plan and the flags --tp=2 --pp=2. */
void fake_step_start(void);
/* The exit status of a callback that may end its process, as in a task. */
int fake_step_in_child(int (*callback)(spank_t, int, char **));

#endif
