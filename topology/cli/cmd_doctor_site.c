/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/cmd_doctor.h"
#include "topology/job/site.h"

/* The site file, as srun reads it: with the user's rights. */

static void read_site(void *arg, int fd)
{
    struct plait_error err;
    struct plait_site *site = plait_site_create(arg, &err);

    if (site)
        dprintf(fd, "+%d", site->npolicies);
    else
        dprintf(fd, "-%s", err.text);
    plait_site_destroy(site);
}

void doctor_check_site(struct doctor *doctor)
{
    const char *path = doctor->site[0] ? doctor->site : plait_site_path();
    struct findings *f = doctor->findings;
    char *said;

    if (!path) {
        findings_add(f, FINDING_NOTE, "site",
                     "no site file (%s): the built-in figures are used",
                     PLAIT_SITE_FILE);
        return;
    }
    said = doctor_as_user(read_site, (void *)path);
    if (!said || !*said)
        findings_add(f, FINDING_UNCHECKED, "site",
                     "whether users can read %.300s", path);
    else if (*said == '+')
        findings_add(f, FINDING_GOOD, "site",
                     "%.300s is in order, policies: %s", path, said + 1);
    else if (strstr(said, "Permission denied"))
        findings_add(f, FINDING_BAD, "site",
                     "users cannot read it, so it has no effect for them: "
                     "%.300s; chmod 644, and its folders 755",
                     said + 1);
    else
        findings_add(f, FINDING_BAD, "site", "%.500s", said + 1);
    free(said);
}
