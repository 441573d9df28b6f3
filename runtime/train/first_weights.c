/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the weights that a new run begins with. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/first_weights.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/consensus.h"

/* Other programs have files of the name manifest.json, too. */
static bool is_manifest(const char *path)
{
    json_t *root = json_load_file(path, 0, NULL);
    const char *format = json_string_value(json_object_get(root, "format"));
    bool found = format && strcmp(format, "plait") == 0;

    json_decref(root);
    return found;
}

/* The folder of a checkpoint, if the configuration is its plait.yaml: who
 * trains by that file means the model it belongs to. malloc'ed. */
static char *folder_of_checkpoint(const char *config)
{
    const char *slash = strrchr(config, '/');
    const char *name = slash ? slash + 1 : config;
    char *dir, *path;
    bool found;

    if (strcmp(name, "plait.yaml") != 0)
        return strdup("");
    dir = slash ? strndup(config, (size_t)(slash - config)) : strdup(".");
    if (!dir || asprintf(&path, "%s/manifest.json", dir) < 0) {
        free(dir);
        return NULL;
    }
    found = is_manifest(path);
    free(path);
    if (found)
        return dir;
    free(dir);
    return strdup("");
}

static char *choose(const struct plait_session *s,
                    const struct plait_train_args *args)
{
    const char *given = args->init ? args->init : s->config->train.init;

    if (given && strcmp(given, PLAIT_INIT_NEW) != 0)
        return strdup(given);
    if (given || !args->config)
        return strdup("");
    return folder_of_checkpoint(args->config);
}

int plait_first_weights_find(struct plait_session *s,
                             const struct plait_train_args *args,
                             struct plait_error *err)
{
    char *text = NULL;
    size_t size;
    int rc = 0;

    if (plait_comm_rank(s->world.comm) == 0 && !(text = choose(s, args)))
        rc = plait_errorf(err, "out of memory");
    size = text ? strlen(text) + 1 : 0;
    if (plait_broadcast_text(s->world.comm, rc, &text, &size, err) < 0)
        return -1;
    if (*text)
        s->init = text;
    else
        free(text);
    return 0;
}
