/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* dl_iterate_phdr, dladdr */
#include "spank_plugin/twice.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <slurm/spank.h>

extern const char plugin_name[];

enum { COPIES_MOST = 8 };

struct copies {
    const char *path[COPIES_MOST]; /* in the order in which they were loaded */
    int n;
};

static int list_copy(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct copies *copies = arg;
    const char *name = info->dlpi_name,
               *slash = name ? strrchr(name, '/') : NULL;

    (void)size;
    if (slash && strstr(slash, plugin_name) && copies->n < COPIES_MOST)
        copies->path[copies->n++] = name;
    return 0;
}

/* 1: the file is this plugin, and its symbols are at other addresses. */
static bool is_other(const char *path)
{
    void *file = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    const char *name = file ? dlsym(file, "plugin_name") : NULL;
    bool other = name && name != plugin_name &&
                 strcmp(name, plugin_name) == 0 &&
                 dlsym(file, "spank_plugin_version");

    if (file)
        dlclose(file);
    return other;
}

const char *plait_twice_own(void)
{
    Dl_info own;

    return dladdr(plugin_name, &own) && own.dli_fname ? own.dli_fname
                                                      : "spank_plait.so";
}

const char *plait_twice_other(int *first)
{
    struct copies copies = {.n = 0};
    const char *own = plait_twice_own(), *other = NULL;

    *first = 1;
    dl_iterate_phdr(list_copy, &copies);
    for (int i = 0, seen = 0; i < copies.n && !other; i++) {
        if (strcmp(copies.path[i], own) == 0)
            seen = 1;
        else if (is_other(copies.path[i])) {
            other = copies.path[i];
            *first = seen;
        }
    }
    return other;
}
