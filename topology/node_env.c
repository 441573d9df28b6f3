/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "node_env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node_env {
    int n;
    char *names[];
};

#define PREFIX "HWLOC_"

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
    for (i = 0; i < env->n; i++) {
        char *value = strchr(env->names[i], '=');

        *value = '\0';
        setenv(env->names[i], value + 1, 1);
        free(env->names[i]);
    }
    free(env);
    errno = saved;
}
