/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/job/site.h"

const char *plait_site_path(void)
{
    const char *named = getenv("PLAIT_SITE");

    if (named)
        return *named ? named : NULL;
    return access(PLAIT_SITE_FILE, F_OK) == 0 ? PLAIT_SITE_FILE : NULL;
}

const char *plait_site_like(const struct plait_site *site, const char *name)
{
    int i = PLAIT_NGPU_TYPES;

    while (i < site->ngpu_types && strcmp(site->gpu_types[i].name, name) != 0)
        i++;
    return i < site->ngpu_types ? plait_gpu_types[site->like[i]].name : NULL;
}
