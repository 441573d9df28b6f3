/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the weights that a new run begins with. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/first_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/consensus.h"
#include "topology/base/files.h"

/* The folder of a checkpoint, if the configuration is its plait.yaml: who
 * trains by that file means the model it belongs to. malloc'ed. */
static char *folder_of_checkpoint(const char *config)
{
    const char *slash = strrchr(config, '/');
    char *dir = slash ? strndup(config, (size_t)(slash - config)) : strdup(".");

    if (dir && plait_files_has(dir, "manifest.json"))
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
