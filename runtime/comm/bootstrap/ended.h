/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BOOTSTRAP_ENDED_H
#define PLAIT_RUNTIME_COMM_BOOTSTRAP_ENDED_H

#include <stdbool.h>

#include "topology/base/error.h"

/* What the launcher tells the ranks that still meet (PLAIT_ENV_ENDED): only it
 * sees that one has ended which they wait for. Who has met all others sees the
 * end of a rank by its connections. */

/* Whether a task of this launcher has ended. False where it does not tell. For
 * struct plait_rendezvous, which passes its arg. */
bool plait_ended_some(void *arg);
/* Which one and how, into err: on the one rank that asks first. The others, and
 * all where the launcher says it itself, as of a signal, get "". */
void plait_ended_tell(struct plait_error *err);

#endif
