/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/node/health.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/capture.h"

void plait_health_add(struct plait_health *health, enum plait_health_kind kind,
                      const char *format, ...)
{
    va_list args;

    if (health->n == PLAIT_HEALTH_FINDINGS)
        return;
    va_start(args, format);
    vsnprintf(health->found[health->n].text, PLAIT_HEALTH_TEXT, format, args);
    va_end(args);
    plait_text_clean(health->found[health->n].text);
    health->found[health->n++].kind = kind;
}

/* In the child: a line for each finding, its kind first. */
static void look(void *arg, int fd)
{
    static void (*const parts[])(const struct plait_health_of *of,
                                 struct plait_health *health) = {
        node_health_log, node_health_sysfs, node_health_nvml};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct plait_health found = {0};

        parts[i](arg, &found);
        for (int k = 0; k < found.n; k++)
            dprintf(fd, "%d %s\n", (int)found.found[k].kind,
                    found.found[k].text);
    }
}

static void read_lines(char *text, struct plait_health *health)
{
    char *save;

    for (char *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        int kind = line[0] - '0';

        if (kind >= PLAIT_HEALTH_NOTE && kind <= PLAIT_HEALTH_BAD &&
            line[1] == ' ')
            plait_health_add(health, (enum plait_health_kind)kind, "%s",
                             line + 2);
    }
}

void plait_health_look(const struct plait_health_of *of, int seconds,
                       struct plait_health *health)
{
    size_t size;
    char *text;

    if (!of->ngpus && !of->nnics)
        return;
    text = plait_capture_call(look, (void *)of, seconds, &size);
    if (text)
        read_lines(text, health);
    else if (errno == ETIMEDOUT)
        plait_health_add(health, PLAIT_HEALTH_BAD,
                         "the drivers of GPUs and NICs have not answered for "
                         "%d s",
                         seconds);
    free(text);
}
