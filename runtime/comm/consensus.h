/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_CONSENSUS_H
#define PLAIT_RUNTIME_COMM_CONSENSUS_H

#include <stddef.h>

#include "runtime/comm/comm.h"

/* How all ranks of a group learn of the first error before any of them goes
 * on. */

/* Collective: -1 on every rank if rc < 0 on any, with the errno of the lowest
 * such rank that has text in err. That rank keeps its text and the other ranks'
 * are emptied, so that the user reads one line. Allocates no memory. */
int plait_error_consensus_at(const char *place, struct plait_comm *world,
                             int rc, struct plait_error *err);
/* Collective: what every rank has at `mine`, `bytes` of each in rank order,
 * malloc'ed. mine: NULL if this rank has had no memory for it, or for what it
 * does with the others'. NULL on all ranks, with errno and err, if that is so
 * on one, or one has no memory for the result; then the world may have failed.
 * One exchange where a backend can refuse (plait_comm_ready()). */
void *plait_gather_values_at(const char *place, struct plait_comm *world,
                             const void *mine, size_t bytes,
                             struct plait_error *err);
/* Collective: gives all ranks what rank 0 has read, so that a shared file
 * system serves one reader instead of thousands. On rank 0, *text (malloc'ed)
 * and *size are inputs if rc is 0, and *text is freed, and NULL, on failure.
 * Elsewhere rc is 0, and both are results. The caller frees *text. */
int plait_broadcast_text_at(const char *place, struct plait_comm *world, int rc,
                            char **text, size_t *size, struct plait_error *err);

/* Their callers' places are noted (comm.h). */
#define plait_error_consensus(...) \
    plait_error_consensus_at(PLAIT_HERE, __VA_ARGS__)
#define plait_gather_values(...) plait_gather_values_at(PLAIT_HERE, __VA_ARGS__)
#define plait_broadcast_text(...) \
    plait_broadcast_text_at(PLAIT_HERE, __VA_ARGS__)

#endif
