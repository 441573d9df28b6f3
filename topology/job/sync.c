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

int plait_sync_fragments(const struct plait_sync_config *sync)
{
    return sync->fragments > 0 ? sync->fragments : 1;
}

/* Of the H steps between its meetings, after how many a fragment meets. */
static int64_t offset_of(const struct plait_sync_config *sync, int fragment)
{
    return fragment * plait_sync_steps(sync) / plait_sync_fragments(sync);
}

bool plait_sync_due(const struct plait_sync_config *sync, int fragment,
                    int64_t done, int64_t steps)
{
    int64_t apart = done - first_apart(sync);

    if (!plait_sync_parts(sync) || apart <= 0)
        return false;
    return apart % plait_sync_steps(sync) == offset_of(sync, fragment) ||
           done == steps;
}

/* How often a fragment meets in `steps` steps apart. */
static int64_t count_meetings(const struct plait_sync_config *sync,
                              int fragment, int64_t steps)
{
    int64_t every = plait_sync_steps(sync), offset = offset_of(sync, fragment);
    int64_t n = offset == 0      ? steps / every
                : steps < offset ? 0
                                 : (steps - offset) / every + 1;

    return n + (steps % every != offset);
}

double plait_sync_share(const struct plait_sync_config *sync, int64_t steps)
{
    int fragments = plait_sync_fragments(sync);
    int64_t first = first_apart(sync), meetings = 0;

    if (!plait_sync_parts(sync))
        return 1;
    for (int i = 0; i < fragments; i++)
        meetings += count_meetings(sync, i, steps - first);
    return ((double)first + (double)meetings / fragments) / (double)steps;
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
