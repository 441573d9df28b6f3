/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_REPLAY_H
#define PLAIT_REPLAY_H

#include <stdbool.h>

#include "runtime/parallel/parallel.h"

/* What train.graph asks for and this run can have: with auto what has no
 * transfers in it, with on all of a step, transfers included, or the run is
 * refused. A function of the configuration, the layout and the kind of world
 * alone: all ranks decide alike. */
int plait_graphs_choose(struct plait_graphs *graphs,
                        const struct plait_config *config,
                        const struct plait_parallel *par,
                        struct plait_error *err);

/* Work on the compute queue that is the same each time: it runs as it is the
 * first time, so that all it needs is there, is recorded the second time,
 * and repeated from then on. Begins as zeros. */
struct plait_replay {
    bool warm;
    struct plait_graph *graph;
    struct plait_comm_stats sent[PLAIT_NCOMMS]; /* each time */
};

/* `work` queues the work on par->q, and transfers of par's groups, which it
 * waits for. Recorded, it has no effect on the device and is then made by the
 * graph; so its effect on the host is to be none, or to be undone before the
 * next run. Where it cannot be recorded it runs as it is, and par->graphs says
 * so; with par->graphs.all that is an error. */
int plait_replay_run(struct plait_replay *replay, struct plait_parallel *par,
                     int (*work)(void *arg), void *arg);
/* The work will be another one from now on: forget the recording. */
void plait_replay_forget(struct plait_replay *replay,
                         const struct plait_parallel *par);

#endif
