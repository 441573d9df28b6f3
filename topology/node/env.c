/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "topology/node/env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node_env {
    int n;
    char *names[];
};

#define PREFIX "HWLOC_"

/* hwloc loads no plugins: they start GPU runtimes, which takes seconds, and
 * report nothing that is not read elsewhere. No banner is printed. */
static const char *const own[][2] = {
    {"HWLOC_PLUGINS_PATH", "/nonexistent"},
    {"HWLOC_HIDE_ERRORS", "2"},
};

struct node_env *node_env_hide(void)
{
    struct node_env *env;
    int n = 0, i;

    for (i = 0; environ && environ[i]; i++)
        n += strncmp(environ[i], PREFIX, strlen(PREFIX)) == 0;
    env = calloc(1, sizeof(*env) + (size_t)n * sizeof(env->names[0]));
    if (!env)
        return NULL;
    for (i = 0; n > 0 && environ[i]; i++) {
        if (strncmp(environ[i], PREFIX, strlen(PREFIX)) != 0)
            continue;
        if (!(env->names[env->n] = strdup(environ[i])))
            goto error;
        env->n++;
    }
    for (i = 0; i < env->n; i++) {
        char *value = strchr(env->names[i], '=');

        *value = '\0';
        unsetenv(env->names[i]);
        *value = '=';
    }
    for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++)
        setenv(own[k][0], own[k][1], 1);
    return env;
error:
    while (env->n > 0)
        free(env->names[--env->n]);
    free(env);
    return NULL;
}

void node_env_restore(struct node_env *env)
{
    int saved = errno, i;

    if (!env)
        return;
    for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++)
        unsetenv(own[k][0]);
    for (i = 0; i < env->n; i++) {
        char *value = strchr(env->names[i], '=');

        *value = '\0';
        setenv(env->names[i], value + 1, 1);
        free(env->names[i]);
    }
    free(env);
    errno = saved;
}
