/* SPDX-License-Identifier: Apache-2.0 */
/* The public library: switches between nodes. */
#include "topology/fabric/fabric.h"

#include <errno.h>

const char *plait_fabric_leaf_name(const struct plait_fabric *fabric,
                                   const char *node)
{
    int leaf = plait_fabric_leaf(fabric, node);

    if (leaf >= 0)
        return plait_fabric_switch_name(fabric, leaf);
    errno = ENOENT;
    return NULL;
}
