/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/node/env.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* slurmd and slurmstepd have threads, which may read the environment at any
 * time: setenv() and unsetenv() would move it under them. So hwloc gets a list
 * of its own, the variables without its own and two more, and `environ` points
 * to that list for a while. The list that was there is not touched, and the new
 * one is kept for good, as another thread may still read it: a few hundred
 * pointers each time, which is once or twice in the life of such a process. */
struct node_env {
    struct node_env *older; /* so that it is not lost */
    char **before;
    char *list[];
};

static struct node_env *kept;

#define PREFIX "HWLOC_"

/* hwloc loads no plugins: they start GPU runtimes, which takes seconds, and
 * report nothing that is not read elsewhere. No banner is printed. */
static char *const own[] = {
    (char *)"HWLOC_PLUGINS_PATH=/nonexistent",
    (char *)"HWLOC_HIDE_ERRORS=2",
};
enum { OWN = sizeof(own) / sizeof(own[0]) };

struct node_env *node_env_hide(void)
{
    char **before = environ;
    struct node_env *env;
    size_t n = 0, used = 0;

    while (before && before[n])
        n++;
    env = calloc(1, sizeof(*env) + (n + OWN + 1) * sizeof(env->list[0]));
    if (!env)
        return NULL;
    for (size_t i = 0; i < n && before[i]; i++)
        if (strncmp(before[i], PREFIX, strlen(PREFIX)) != 0)
            env->list[used++] = before[i];
    for (size_t i = 0; i < OWN; i++)
        env->list[used++] = own[i];
    env->before = before;
    env->older = kept;
    kept = env;
    environ = env->list;
    return env;
}

void node_env_restore(struct node_env *env)
{
    /* Another thread's setenv() has made a new list, with its variable. */
    if (env && environ == env->list)
        environ = env->before;
}
