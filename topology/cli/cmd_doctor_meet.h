/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_MEET_H
#define PLAIT_TOPOLOGY_CLI_CMD_DOCTOR_MEET_H

#include <stdint.h>

#include "topology/cli/cmd_doctor.h"

/* Whether the nodes reach srun's host, as a planned step's do before its tasks
 * start, and each the next one, at a port that could be a MASTER_PORT. */

struct doctor_meet;

/* How long, in seconds, a node may wait for one that does not come, at both of
 * the meetings. */
enum { DOCTOR_MEET_MOST = 60 };

/* On srun's host. `listen` is SrunPortRange (0: any), `ports` where the nodes
 * listen for each other. addresses[i] is where the node names[i] is to be
 * reached. All must outlive the meeting. What the nodes need to know is in the
 * environment from now on. NULL, with the reason in err. */
struct doctor_meet *doctor_meet_create(char *const *names,
                                       char *const *addresses, int n,
                                       const uint16_t listen[2],
                                       const uint16_t ports[2],
                                       struct plait_error *err);
void doctor_meet_destroy(struct doctor_meet *meet);

/* On a node: adds a finding, about "network". *to is the name of the node that
 * was not reached, "" for none. Nothing where nobody meets. */
void doctor_meet_join(struct findings *findings, char *to, size_t size);

#endif
