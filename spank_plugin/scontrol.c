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
#include "topology/base/hostlist.h"

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

struct name_search {
    const char *name;
    int found;
};

static int match_name(void *arg, const char *name)
{
    struct name_search *search = arg;

    search->found |= strcmp(search->name, name) == 0;
    return search->found ? -1 : 0;
}

void plait_scontrol_parse_cpus(const char *text, const char *node, char *buf,
                               size_t size)
{
    struct name_search search = {node, 0};
    int list = 0, list_end = 0, cpus = 0, cpus_end = 0;
    struct plait_error err;

    buf[0] = '\0';
    for (; text; text = strchr(text, '\n'), text += text != NULL) {
        cpus_end = 0;
        sscanf(text, " Nodes=%n%*[^ \n]%n CPU_IDs=%n%*[^ \n]%n", &list,
               &list_end, &cpus, &cpus_end);
        if (!cpus_end)
            continue;
        plait_hostlist_each(text + list, (size_t)(list_end - list), match_name,
                            &search, &err);
        if (search.found && (size_t)(cpus_end - cpus) < size)
            snprintf(buf, size, "%.*s", cpus_end - cpus, text + cpus);
        if (search.found)
            return;
    }
}

void plait_scontrol_cpus(uint32_t job, const char *node, char *buf, size_t size)
{
    char id[16], *argv[] = {NULL, "show", "job", "--details", id, NULL};
    size_t length = 0;
    char *text;

    snprintf(id, sizeof(id), "%u", job);
    text = run_scontrol(argv, &length);
    plait_scontrol_parse_cpus(text ? text : "", node, buf, size);
    free(text);
}
