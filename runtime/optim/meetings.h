/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_MEETINGS_H
#define PLAIT_RUNTIME_OPTIM_MEETINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/optim/averaging.h"
#include "runtime/parallel/shard.h"

/* The meetings of replicas with sync.mode local, post-local and diloco. A
 * fragment meets in runs of its regions (fragments.h): the sum of all replicas'
 * differences to the common model (exchange.h) moves that.
 *
 * With sync.delay (Douillard et al., arXiv 2501.18512, algorithm 2) what is
 * sent after step t arrives after step t + delay, and the replicas compute in
 * between: the sum is made beside their steps. When a transfer has ended has no
 * effect: its sum is used after step t + delay. Of a run that was resumed with
 * fewer steps, it is used after the last, just before all meet. */
struct plait_meetings;

/* Vectors over this rank's weights, which must outlive the meetings. */
struct plait_meeting_vectors {
    struct plait_vectors v;
    float *w, *common;
    float *momentum; /* NULL with local and post-local */
};

/* For the model that is sharded; its mesh has the DP group. NULL with
 * ENOMEM. */
struct plait_meetings *
plait_meetings_create(const struct plait_shards *shards,
                      const struct plait_meeting_vectors *vectors);
/* What is under way is waited for. */
void plait_meetings_destroy(struct plait_meetings *meetings);

/* After `done` steps: lets arrive what arrives, and meet what is due. *changed:
 * the weights have changed. Collective over the dp group. */
int plait_meetings_end(struct plait_meetings *meetings, int64_t done,
                       bool *changed);

/* What is under way, as a vector over the weights that a checkpoint stores;
 * NULL without a delay. Where something is under way it is the sum, once
 * plait_meetings_settle() has waited for it. */
float *plait_meetings_pending(const struct plait_meetings *meetings);
int plait_meetings_settle(struct plait_meetings *meetings);
/* After which step each fragment [PLAIT_SYNC_FRAGMENTS_MOST] has sent what is
 * under way; 0: nothing is. */
const int64_t *plait_meetings_sent(const struct plait_meetings *meetings);
/* After loading the vector of that. */
void plait_meetings_resume(struct plait_meetings *meetings,
                           const int64_t *sent);

#endif
