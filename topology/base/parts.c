/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/parts.h"

#include <stdlib.h>

void plait_parts_clear(struct plait_parts *parts)
{
    for (int i = 0; i < parts->n; i++) {
        free(parts->at[i].name);
        free(parts->at[i].path);
    }
    free(parts->at);
    parts->at = NULL;
    parts->n = 0;
}

const char *plait_parts_path(const struct plait_parts *parts)
{
    return parts->n > 0 ? parts->at[0].path : NULL;
}
