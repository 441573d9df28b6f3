/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MESH_GRAPH_CAPTURE_H
#define PLAIT_RUNTIME_MESH_GRAPH_CAPTURE_H

#include <stdbool.h>

#include "runtime/mesh/mesh.h"

/* Choose what is captured, transfers included: with train.graph auto what can
 * be, with on all of a step, or an error. It depends only on the configuration,
 * the layout and the backend, so that all ranks choose the same. */
int plait_graphs_choose(struct plait_graphs *graphs,
                        const struct plait_job_config *config,
                        const struct plait_mesh *mesh, struct plait_error *err);

/* Work on the compute queue that is the same in every step. The first call
 * runs it directly, so that all memory that it needs gets allocated; the
 * second captures it as a graph; that call and all later ones replay the
 * graph. While mesh->graphs.held, each call is as the first. Starts zeroed. */
struct plait_graph_capture {
    bool warm;
    struct plait_graph *graph;
    struct plait_comm_stats sent[PLAIT_NCOMMS]; /* by one replay */
};

/* `work` queues its operations on mesh->q, with transfers of mesh's groups,
 * for which it waits. While it is captured nothing runs on the device: the
 * replay does that. So `work` must have no effect on the host, or one that is
 * undone before the next call. Where a device cannot capture it, it runs
 * directly on all ranks, and mesh->graphs says why on one of them; with
 * mesh->graphs.all that is an error. Collective where transfers are captured.
 */
int plait_graph_capture_run(struct plait_graph_capture *capture,
                            struct plait_mesh *mesh, int (*work)(void *arg),
                            void *arg);
/* Drop the graph: the next call captures again. */
void plait_graph_capture_reset(struct plait_graph_capture *capture,
                               const struct plait_mesh *mesh);

#endif
