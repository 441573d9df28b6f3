/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/sync.h"

const char *const plait_sync_mode_names[PLAIT_NSYNC_MODES] = {
    "each", "local", "post-local", "sma", "diloco"};

int plait_sync_learners(const struct plait_sync_config *sync)
{
    return sync->learners > 0 ? sync->learners : 1;
}

bool plait_sync_many(const struct plait_sync_config *sync)
{
    return sync->learners > 1 || sync->learners == PLAIT_SYNC_LEARNERS_AUTO;
}

int64_t plait_sync_steps(const struct plait_sync_config *sync)
{
    static const int64_t published[PLAIT_NSYNC_MODES] = {
        [PLAIT_SYNC_EACH] = 1,        [PLAIT_SYNC_LOCAL] = 16,
        [PLAIT_SYNC_POST_LOCAL] = 16, [PLAIT_SYNC_SMA] = 1,
        [PLAIT_SYNC_DILOCO] = 500,
    };

    return sync->steps ? sync->steps : published[sync->mode];
}

bool plait_sync_parts(const struct plait_sync_config *sync)
{
    switch (sync->mode) {
    case PLAIT_SYNC_EACH:
        return false;
    case PLAIT_SYNC_LOCAL:
    case PLAIT_SYNC_POST_LOCAL:
        return plait_sync_steps(sync) > 1;
    default:
        return true;
    }
}

/* The first step in which replicas train apart. */
static int64_t first_apart(const struct plait_sync_config *sync)
{
    return sync->mode == PLAIT_SYNC_POST_LOCAL ? sync->from : 0;
}

bool plait_sync_apart(const struct plait_sync_config *sync, int64_t step)
{
    return plait_sync_parts(sync) && step >= first_apart(sync);
}

bool plait_sync_due(const struct plait_sync_config *sync, int64_t done,
                    int64_t steps)
{
    int64_t apart = done - first_apart(sync);

    if (!plait_sync_parts(sync) || apart <= 0)
        return false;
    return apart % plait_sync_steps(sync) == 0 || done == steps;
}

double plait_sync_share(const struct plait_sync_config *sync, int64_t steps)
{
    double first, meetings;
    int64_t every = plait_sync_steps(sync);

    if (!plait_sync_parts(sync))
        return 1;
    first = (double)first_apart(sync);
    meetings = (double)((steps - first_apart(sync) + every - 1) / every);
    return (first + meetings) / (double)steps;
}

int plait_sync_vectors(const struct plait_sync_config *sync)
{
    if (!plait_sync_parts(sync))
        return 0;
    switch (sync->mode) {
    case PLAIT_SYNC_SMA: /* average, its change, correction, their sum */
        return plait_sync_learners(sync) > 1 ? 4 : 3;
    case PLAIT_SYNC_DILOCO: /* the common model, the outer momentum */
        return 2;
    default:
        return 1;
    }
}
