/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/visible.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_entry(struct plait_visible *visible, const char *start,
                     size_t length, struct plait_error *err)
{
    if (visible->n == PLAIT_VISIBLE_MOST)
        return plait_errorf(err, "more than %d visible GPUs",
                            PLAIT_VISIBLE_MOST);
    if (length < 1 || length >= sizeof(visible->id[0]))
        return plait_errorf(err, "a visible GPU has a bad name: '%.*s'",
                            (int)(length > 60 ? 60 : length), start);
    for (int i = 0; i < visible->n; i++)
        if (strlen(visible->id[i]) == length &&
            strncmp(visible->id[i], start, length) == 0)
            return plait_errorf(err, "GPU %s is listed as visible twice",
                                visible->id[i]);
    memcpy(visible->id[visible->n], start, length);
    visible->id[visible->n++][length] = '\0';
    return 0;
}

int plait_visible_parse(const char *text, struct plait_visible *visible,
                        struct plait_error *err)
{
    struct plait_visible found = {0};

    errno = EINVAL;
    if (text && *text && strcmp(text, "NoDevFiles") != 0) {
        for (const char *p = text;; p++) {
            size_t length = strcspn(p, ",");

            if (add_entry(&found, p, length, err) < 0)
                return -1;
            p += length;
            if (!*p)
                break;
        }
    }
    *visible = found;
    return 0;
}

int plait_visible_format(const struct plait_visible *visible, const int *order,
                         char *buf, size_t size)
{
    size_t used = 0;

    if (size)
        buf[0] = '\0';
    for (int i = 0; i < visible->n; i++) {
        int n = snprintf(buf + used, size - used, "%s%s", i ? "," : "",
                         visible->id[order[i]]);

        if (n < 0 || (size_t)n >= size - used) {
            errno = ERANGE;
            return -1;
        }
        used += (size_t)n;
    }
    return 0;
}
