/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_SYNC_H
#define PLAIT_TOPOLOGY_JOB_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How data-parallel replicas of a model stay one model: by summing gradients
 * in each step, or by training apart and meeting now and then. The runtime
 * trains by these rules, the planner counts bytes by them. */

enum plait_sync_mode {
    PLAIT_SYNC_EACH,       /* gradients are summed in each step */
    PLAIT_SYNC_LOCAL,      /* local SGD: Stich, arXiv 1805.09767 */
    PLAIT_SYNC_POST_LOCAL, /* each until step `from`, then local: Lin et al.,
                              arXiv 1808.07217 */
    PLAIT_SYNC_SMA,        /* CROSSBOW: Koliousis et al., arXiv 1901.02244 */
    PLAIT_SYNC_DILOCO,     /* Douillard et al., arXiv 2311.08105 */
    PLAIT_NSYNC_MODES
};
extern const char *const plait_sync_mode_names[PLAIT_NSYNC_MODES];

/* What replicas send when they meet. Codes are added up in fp32. */
enum plait_sync_gradients {
    PLAIT_SYNC_FP32,
    PLAIT_SYNC_BF16,
    PLAIT_SYNC_FP8, /* e5m2: 5 bits of exponent, 2 of mantissa */
    PLAIT_NSYNC_GRADIENTS
};
extern const char *const plait_sync_gradient_names[PLAIT_NSYNC_GRADIENTS];

/* How many learners there are is measured before the first step. */
#define PLAIT_SYNC_LEARNERS_AUTO (-1)

struct plait_sync_config {
    enum plait_sync_mode mode;
    int64_t steps;   /* H, from one meeting of the replicas to the next; 0: not
                        given, what plait_sync_steps() says */
    int64_t from;    /* of post-local */
    double lr;       /* of diloco's outer optimizer */
    double momentum; /* of diloco's outer optimizer, and of sma's average */
    double alpha;    /* of sma; below 0: not given, 1 / learners in all */
    int fragments;   /* of diloco: parts of the model that meet in turn; 0 is
                        1, too */
    enum plait_sync_gradients gradients; /* of diloco */
    int delay;     /* of diloco: steps from sending to arrival */
    double mixing; /* the part of its own weights that a replica keeps at an
                      arrival; below 0: not given, 0.5 */
    int learners;  /* of sma, trained one after the other by the ranks of
                      each dp coordinate; 0: not given, 1; or AUTO */
};

/* H: sync->steps, or where that is not given the published one: 16 of local
 * and post-local, 500 of diloco, 1 of sma. */
int64_t plait_sync_steps(const struct plait_sync_config *sync);

/* The number of learners; 1 where it is not known yet. */
int plait_sync_learners(const struct plait_sync_config *sync);
/* Whether there are, or may be, several learners. */
bool plait_sync_many(const struct plait_sync_config *sync);

/* Whether replicas ever differ. Local SGD that meets after every step is by
 * definition synchronous SGD (Lin et al.), and is run as that. */
bool plait_sync_parts(const struct plait_sync_config *sync);

/* Whether replicas train apart in step `step`, counted from 0. */
bool plait_sync_apart(const struct plait_sync_config *sync, int64_t step);

/* In how many fragments the model meets: 1, or with Streaming DiLoCo (Douillard
 * et al., arXiv 2501.18512) more. */
#define PLAIT_SYNC_FRAGMENTS_MOST 256
int plait_sync_fragments(const struct plait_sync_config *sync);

/* Whether the replicas' fragment number `fragment` meets after `done` of
 * `steps` steps: every H steps, number p of F p H / F steps after the first,
 * and after the last step, so that the run ends with one model. With sync.delay
 * all but the last only send then; what would not arrive before the last step
 * is not sent. */
bool plait_sync_due(const struct plait_sync_config *sync, int fragment,
                    int64_t done, int64_t steps);

/* sync->mixing, or where that is not given the published one. */
double plait_sync_mixing(const struct plait_sync_config *sync);

/* How many all-reduces of the whole model a step makes, on average over a run
 * of `steps`: 1 in mode each. Fragments count as equal parts. */
double plait_sync_share(const struct plait_sync_config *sync, int64_t steps);

/* Bytes that a weight is when it is sent: 4, 2 or 1. */
int plait_sync_element(const struct plait_sync_config *sync);
/* Bytes of a weight in the all-reduce that sends as many as a meeting of so
 * many replicas. Numbers in fp32 are summed by one; codes are gathered, as no
 * sum of codes is exact, and each rank receives those of all others. */
double plait_sync_sent(const struct plait_sync_config *sync, int replicas);

/* How many of a rank's weights there must be room for codes of: some at a time,
 * or with a delay all. */
double plait_sync_room(const struct plait_sync_config *sync, double weights);

/* Vectors of as many fp32 numbers as there are weights that a rank keeps for
 * its meetings: the common model, the outer momentum, a correction, ... */
int plait_sync_vectors(const struct plait_sync_config *sync);

#ifdef __cplusplus
}
#endif
#endif
