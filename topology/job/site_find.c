/* SPDX-License-Identifier: Apache-2.0 */
/* Where the site file is, and which built-in type a site's own type is like. */
#include <errno.h>
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

void plait_site_destroy(struct plait_site *site)
{
    int saved = errno;

    if (!site)
        return;
    for (int i = 0; i < site->npolicies; i++) {
        free(site->policies[i].partition);
        free(site->policies[i].user);
        free(site->policies[i].account);
        free(site->policies[i].qos);
        free(site->policies[i].gpu);
    }
    free(site);
    errno = saved;
}
