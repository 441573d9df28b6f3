/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_MERGE_H
#define PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_MERGE_H

#include <jansson.h>

#include "topology/cli/cmd_doctor.h"

/* What many nodes found, each distinct finding once with the nodes that have
 * it. A node's report is a line of JSON for each finding (Slurm mixes longer
 * lines of several tasks),
 *     {"node": "n1", "kind": "bad", "about": "plugin", "text": "..."}
 * perhaps with a "to", the other node that it is about; and a last line with
 * the number of the others, {"node": "n1", "findings": 14}. */

struct doctor_merge;

struct doctor_merge *doctor_merge_create(void);
void doctor_merge_destroy(struct doctor_merge *merge);

/* A node that should report; all are named before the first line. 0, or -1
 * without memory. */
int doctor_merge_expect(struct doctor_merge *merge, const char *node);
/* 1: the line is a part of a report of such a node; 0: it is something else;
 * -1: out of memory. */
int doctor_merge_line(struct doctor_merge *merge, const char *line);
/* Adds a finding about one of the nodes that is not in its own report. */
int doctor_merge_add(struct doctor_merge *merge, const char *node,
                     enum finding_kind kind, const char *about,
                     const char *text);
/* After the last line: nodes without a report, or without all of it, and
 * nodes whose releases differ from each other or from `version`, this host's.
 * `why` is what srun said. */
int doctor_merge_finish(struct doctor_merge *merge, const char *version,
                        const char *why);

/* Distinct findings of a kind. */
int doctor_merge_count(const struct doctor_merge *merge,
                       enum finding_kind kind);
void doctor_merge_print(const struct doctor_merge *merge);
json_t *doctor_merge_json(const struct doctor_merge *merge);

#endif
