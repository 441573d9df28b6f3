/* SPDX-License-Identifier: Apache-2.0 */
/* Where the site file is, its types by their names, and which built-in type a
 * site's own type is like. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "topology/base/nearest.h"
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

/* "a100-40g, a100-80g or a100-64g" of "a100"; false: not several begin so. */
static bool find_family(const char *const *names, int n, const char *begin,
                        char *buf, size_t size)
{
    size_t used = 0, letters = strlen(begin);
    int left = 0;

    for (int i = 0; i < n; i++)
        left += letters > 2 && strncasecmp(names[i], begin, letters) == 0;
    if (left < 2)
        return false;
    for (int i = 0; i < n && left > 0 && used < size; i++) {
        if (strncasecmp(names[i], begin, letters) != 0)
            continue;
        left--;
        used += (size_t)snprintf(buf + used, size - used, "%s%s", names[i],
                                 left > 1    ? ", "
                                 : left == 1 ? " or "
                                             : "");
    }
    return used > 0;
}

/* Refuse an unknown type: err lists the site's own types beside those of the
 * table. */
static int refuse_type(const struct plait_site *site, const char *name,
                       struct plait_error *err)
{
    const char *names[PLAIT_NGPU_TYPES + PLAIT_SITE_TYPES];
    char own[PLAIT_SITE_TYPES * sizeof(site->gpu_types[0].name) + 1] = "";
    char family[160];
    size_t used = 0;
    int nearest;

    for (int i = 0; i < site->ngpu_types; i++) {
        names[i] = site->gpu_types[i].name;
        if (i >= PLAIT_NGPU_TYPES)
            used += (size_t)snprintf(own + used, sizeof(own) - used, " %s",
                                     names[i]);
    }
    nearest = plait_nearest(name, names, site->ngpu_types);
    errno = EINVAL;
    if (find_family(names, site->ngpu_types, name, family, sizeof(family)))
        return plait_errorf(err, "no GPU type \"%.40s\"; did you mean %s?",
                            name, family);
    return plait_errorf(
        err, "no GPU type \"%.40s\"%s%s%s %s %s%s", name,
        nearest < 0 ? "" : "; did you mean ", nearest < 0 ? "" : names[nearest],
        nearest < 0 ? ";" : "?", nearest < 0 ? "there are" : "There are",
        plait_gpu_type_names(), own);
}

int plait_site_gpu_type(const struct plait_site *site, const char *name,
                        struct plait_gpu_type *type, struct plait_error *err)
{
    int i = 0;

    if (!name)
        i = site->gpu_type;
    else
        while (i < site->ngpu_types &&
               strcasecmp(site->gpu_types[i].name, name) != 0)
            i++;
    if (i == site->ngpu_types)
        return refuse_type(site, name, err);
    *type = site->gpu_types[i];
    return 0;
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
    free(site->preflight.hook);
    free(site);
    errno = saved;
}
