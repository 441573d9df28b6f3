/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "scontrol.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/capture.h"

enum { SECONDS_MOST = 60 };

/* The scontrol beside the srun that runs, or else the one on PATH. */
static void find_scontrol(char *path, size_t size)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n > 0) {
        self[n] = '\0';
        snprintf(path, size, "%s/scontrol", dirname(self));
        if (access(path, X_OK) == 0)
            return;
    }
    snprintf(path, size, "scontrol");
}

struct plait_fabric *plait_scontrol_parse(const char *text, size_t size,
                                          struct plait_error *err)
{
    static const char none[] = "No topology information";

    if (size >= sizeof(none) - 1 && strncmp(text, none, sizeof(none) - 1) == 0)
        return plait_fabric_create_flat();
    return plait_fabric_parse("scontrol show topology", text, size, err);
}

struct plait_fabric *plait_scontrol_fabric(struct plait_error *err)
{
    struct plait_fabric *fabric = NULL;
    char path[PATH_MAX + 16];
    char *argv[] = {path, "show", "topology", NULL};
    size_t size = 0;
    int status = -1;
    char *text;

    find_scontrol(path, sizeof(path));
    text = plait_capture(argv, 0, SECONDS_MOST, &size, &status);
    if (!text || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        plait_errorf(err, "scontrol show topology failed; "
                          "--placement=linear does without");
    else
        fabric = plait_scontrol_parse(text, size, err);
    free(text);
    return fabric;
}
