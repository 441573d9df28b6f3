/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MESH_GRAPH_CAPTURE_H
#define PLAIT_RUNTIME_MESH_GRAPH_CAPTURE_H

#include <stdbool.h>

#include "runtime/mesh/mesh.h"

/* Choose which parts of a step are captured, transfers included: with
 * train.graph auto all that can be, with on the whole step or an error. The
 * choice depends only on the configuration, the layout and the backend, so that
 * all ranks choose the same. */
int plait_graphs_choose(struct plait_graphs *graphs,
                        const struct plait_job_config *config,
                        const struct plait_mesh *mesh, struct plait_error *err);

/* Work on the compute queue that is the same in every step. The first call runs
 * it directly, so that all memory that it needs gets allocated; the second
 * captures it as a graph and replays it, as do all later calls. While
 * mesh->graphs.held is set, every call runs directly. Starts zeroed. */
struct plait_graph_capture {
    bool warm;
    struct plait_graph *graph;
    struct plait_comm_stats sent[PLAIT_NCOMMS + 1]; /* by one replay; the
                                                       world's comes last */
    /* Called with the argument of `work` before a capture, and if no graph came
     * of it, before `work` runs directly: they keep and restore what `work` has
     * changed on the host. NULL: it changes nothing there. */
    void (*keep)(void *arg);
    void (*restore)(void *arg);
};

/* `work` queues operations on mesh->q, including transfers of the mesh's
 * groups, and waits for the transfers. During the capture nothing runs on the
 * device; the replay runs it. So what `work` changes on the host must be undone
 * before the next call. If one rank's device cannot capture it, all ranks run
 * it directly, and mesh->graphs says why on one of them; with mesh->graphs.all
 * that is an error. Collective where transfers are captured. */
int plait_graph_capture_run(struct plait_graph_capture *capture,
                            struct plait_mesh *mesh, int (*work)(void *arg),
                            void *arg);
/* Destroy the graph; the next call captures again. */
void plait_graph_capture_reset(struct plait_graph_capture *capture,
                               const struct plait_mesh *mesh);

#endif
