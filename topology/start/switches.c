/* SPDX-License-Identifier: Apache-2.0 */
/* Which switches a step is planned by, and what to do where they are not
 * known. */
#include "topology/start/switches.h"

#include <stdlib.h>

#include "topology/start/scontrol.h"

bool plait_switches_matter(const struct plait_plan_request *request)
{
    /* The order of two nodes does not depend on the switches; whether a tp
     * group may span them does. */
    return request->placement == PLAIT_PLACE_TOPOLOGY &&
           (request->nnodes > 2 ||
            request->layout.size[PLAIT_TP] > request->tasks[0]);
}

struct plait_fabric *plait_switches_check(struct plait_plan_request *request,
                                          struct plait_fabric *fabric,
                                          struct plait_error *warning)
{
    request->fabric = fabric;
    if (plait_plan_check_fabric(request, warning) == 0)
        return fabric;
    plait_fabric_destroy(fabric);
    return NULL;
}

/* NULL without an error: there is no file, or it is not of these nodes. */
static struct plait_fabric *read_file(const struct plait_plan_request *request,
                                      struct plait_error *err)
{
    const char *path = getenv(PLAIT_ENV_FABRIC);
    struct plait_fabric *fabric;

    if (!path || !*path)
        return NULL;
    fabric = plait_fabric_create_for(path, NULL, request->nodes,
                                     request->nnodes, err);
    if (!fabric ||
        plait_fabric_lacks(fabric, request->nodes, request->nnodes) < 0)
        return fabric;
    plait_fabric_destroy(fabric);
    return NULL;
}

bool plait_switches_have_blocks(const char *partitions)
{
    const char *path = getenv(PLAIT_ENV_FABRIC);
    struct plait_fabric *fabric =
        path && *path ? plait_fabric_create(path, NULL) : NULL;
    bool found = fabric && plait_fabric_has_blocks(fabric);

    plait_fabric_destroy(fabric);
    return found || plait_scontrol_has_blocks(partitions);
}

struct plait_fabric *plait_switches_ask(struct plait_plan_request *request,
                                        const char *partition,
                                        struct plait_error *warning)
{
    struct plait_fabric *fabric;
    struct plait_error why = {""};

    warning->text[0] = '\0';
    if (!plait_switches_matter(request))
        return NULL;
    fabric = read_file(request, &why);
    if (!fabric && !why.text[0])
        fabric = plait_scontrol_fabric(partition, &why);
    if (fabric)
        return plait_switches_check(request, fabric, warning);
    plait_errorf(warning, "%s; the nodes stay in Slurm's order", why.text);
    return NULL;
}
