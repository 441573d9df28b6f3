/* SPDX-License-Identifier: Apache-2.0 */
/* The public library: what a task's environment says of its place. */
#include "topology/api/plait/launch.h"

#include <errno.h>
#include <stdlib.h>

#include "topology/layout/launch.h"

struct plait_launch *plait_launch_create(struct plait_error *err)
{
    struct plait_launch *launch = malloc(sizeof(*launch));
    int rc;

    if (!launch) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    rc = plait_launch_decode(launch, NULL, NULL, err);
    if (rc > 0)
        return launch;
    plait_launch_destroy(launch);
    errno = rc < 0 ? EINVAL : ENOENT;
    if (rc == 0)
        plait_errorf(err, "this process was not started under a plan: "
                          "PLAIT_RANK is not set");
    return NULL;
}

void plait_launch_destroy(struct plait_launch *launch)
{
    int saved = errno;

    free(launch);
    errno = saved;
}

int plait_launch_rank(const struct plait_launch *launch)
{
    return launch->rank;
}

int plait_launch_world_size(const struct plait_launch *launch)
{
    return launch->world_size;
}

int plait_launch_local_rank(const struct plait_launch *launch)
{
    return launch->local_rank;
}

int plait_launch_local_world_size(const struct plait_launch *launch)
{
    return launch->local_world_size;
}

int plait_launch_node_rank(const struct plait_launch *launch)
{
    return launch->node_rank;
}

int plait_launch_nodes(const struct plait_launch *launch)
{
    return launch->nnodes;
}

const struct plait_layout *
plait_launch_layout(const struct plait_launch *launch)
{
    return &launch->layout;
}

int plait_launch_coordinate(const struct plait_launch *launch,
                            enum plait_axis axis)
{
    if ((unsigned)axis < PLAIT_NAXES)
        return launch->coord.at[axis];
    errno = EINVAL;
    return -1;
}

int plait_launch_gpu(const struct plait_launch *launch)
{
    return launch->gpu;
}

const char *plait_launch_gpu_busid(const struct plait_launch *launch)
{
    return launch->gpu_busid;
}

const char *plait_launch_nics(const struct plait_launch *launch)
{
    return launch->nics;
}

const char *plait_launch_cpus(const struct plait_launch *launch)
{
    return launch->cpus;
}

const char *plait_launch_jobid(const struct plait_launch *launch)
{
    return launch->jobid;
}

const char *plait_launch_master_addr(const struct plait_launch *launch)
{
    return launch->master_addr;
}

int plait_launch_master_port(const struct plait_launch *launch)
{
    return launch->master_port;
}
