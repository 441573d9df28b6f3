/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/sync.h"

const char *const plait_sync_mode_names[PLAIT_NSYNC_MODES] = {
    "each", "local", "post-local", "sma", "diloco"};

const char *const plait_sync_gradient_names[PLAIT_NSYNC_GRADIENTS] = {
    "fp32", "bf16", "fp8"};

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
    return done == steps ||
           (apart % plait_sync_steps(sync) == offset_of(sync, fragment) &&
            done + sync->delay < steps);
}

double plait_sync_mixing(const struct plait_sync_config *sync)
{
    return sync->mixing < 0 ? 0.5 : sync->mixing;
}

/* How often a fragment meets in `steps` steps apart: as often as it is due long
 * enough before the last of them, and after that. */
static int64_t count_meetings(const struct plait_sync_config *sync,
                              int fragment, int64_t steps)
{
    int64_t every = plait_sync_steps(sync), offset = offset_of(sync, fragment);
    int64_t before = steps - 1 - sync->delay;
    int64_t first = offset > 0 ? offset : every;

    if (steps <= 0)
        return 0;
    return 1 + (before < first ? 0 : (before - first) / every + 1);
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

int plait_sync_element(const struct plait_sync_config *sync)
{
    static const int bytes[PLAIT_NSYNC_GRADIENTS] = {4, 2, 1};

    return bytes[sync->gradients];
}

/* An all-reduce of S bytes sends 2 (n - 1) / n S, an all-gather (n - 1) S. */
double plait_sync_sent(const struct plait_sync_config *sync, int replicas)
{
    double element = plait_sync_element(sync);

    return sync->gradients == PLAIT_SYNC_FP32 ? element
                                              : element * replicas / 2;
}

/* Codes of n replicas are kept until they are added up. */
#define CODES_AT_A_TIME (1 << 22)

double plait_sync_room(const struct plait_sync_config *sync, double weights)
{
    return sync->delay == 0 && weights > CODES_AT_A_TIME ? CODES_AT_A_TIME
                                                         : weights;
}

int plait_sync_vectors(const struct plait_sync_config *sync)
{
    if (!plait_sync_parts(sync))
        return 0;
    switch (sync->mode) {
    case PLAIT_SYNC_SMA: /* average, its change, correction, their sum */
        return plait_sync_learners(sync) > 1 ? 4 : 3;
    case PLAIT_SYNC_DILOCO: /* the common model, the outer momentum, what is
                               under way */
        return sync->delay > 0 ? 3 : 2;
    default:
        return 1;
    }
}
