/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spank_plugin/scontrol.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/base/capture.h"

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

/* What scontrol prints; argv[0] is filled here. NULL where it fails. */
static char *run_scontrol(char *argv[], size_t *size)
{
    char path[PATH_MAX + 16];
    int status = -1;
    char *text;

    find_scontrol(path, sizeof(path));
    argv[0] = path;
    text = plait_capture(argv, 0, SECONDS_MOST, size, &status);
    if (text && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return text;
    free(text);
    return NULL;
}

struct plait_fabric *plait_scontrol_fabric(struct plait_error *err)
{
    char *argv[] = {NULL, "show", "topology", NULL};
    struct plait_fabric *fabric = NULL;
    size_t size = 0;
    char *text = run_scontrol(argv, &size);

    if (!text)
        plait_errorf(err, "scontrol show topology failed; "
                          "--placement=linear does not need it");
    else
        fabric = plait_scontrol_parse(text, size, err);
    free(text);
    return fabric;
}
