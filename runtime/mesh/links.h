/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MESH_LINKS_H
#define PLAIT_RUNTIME_MESH_LINKS_H

#include "runtime/mesh/mesh.h"

/* What is to be said about the links of a run's groups; "": nothing. */
struct plait_mesh_links {
    char all[400];  /* on rank 0: each kind of group, its links and rate */
    char slow[400]; /* on one rank for each kind: a group far below its links */
};

/* Sums once through the groups of tensor and of data parallel ranks, where the
 * backend chooses the links: so they are connected before the first step, and
 * links that are not used are noticed. Collective over the world. */
int plait_mesh_try_links(struct plait_mesh *mesh,
                         struct plait_mesh_links *links,
                         struct plait_error *err);

#endif
