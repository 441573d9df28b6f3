/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file of NCCL's topology XML. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/node/build.h"

struct plait_node *plait_node_create_nccl(const char *path,
                                          struct plait_error *err)
{
    struct plait_node *node = NULL;
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t size;

    if (!file) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    text = malloc(NODE_NCCL_MOST + 1);
    if (!text) {
        plait_errorf(err, "%s: out of memory", path);
        goto out;
    }
    size = fread(text, 1, NODE_NCCL_MOST + 1, file);
    if (ferror(file))
        plait_errorf(err, "%s: %s", path, strerror(errno));
    else
        node = plait_node_parse_nccl(path, text, size, err);
out:
    free(text);
    fclose(file);
    return node;
}
