/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "topology/fabric/build.h"

/* Lines of "$SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN", one per node,
 * such as "s0.s4.n1 switch.switch.node" or "b2.n1 block.node", the outermost
 * switch first. Slurm tells each node only its own address; one task per node
 * that echoes both gives the whole job's tree. */

enum { PARTS_MOST = 16, LINE_LONGEST = 1023 };

struct line {
    const char *file;
    int number;
    char text[LINE_LONGEST + 1];
    struct plait_error *err;
};

static int split(char *text, char *part[PARTS_MOST])
{
    int n = 0;

    for (char *p = strtok_r(text, ".", &text); p;
         p = strtok_r(NULL, ".", &text)) {
        if (n == PARTS_MOST)
            return -1;
        part[n++] = p;
    }
    return n;
}

static int refuse_line(const struct line *line, const char *what)
{
    errno = EINVAL;
    return plait_errorf(line->err, "%s:%d: %s", line->file, line->number, what);
}

/* The pattern says of which kind each part of the address is. */
static int check_pattern(const struct line *line, char *const *kind, int n,
                         int *blocks)
{
    for (int i = 0; i < n; i++) {
        if (i == n - 1 ? strcmp(kind[i], "node") != 0
                       : strcmp(kind[i], "switch") != 0 &&
                             strcmp(kind[i], "block") != 0)
            return refuse_line(
                line, "expected a pattern such as switch.switch.node or "
                      "block.node");
        *blocks |= strcmp(kind[i], "block") == 0;
    }
    return 0;
}

static int read_line(struct plait_fabric *fabric, struct line *line)
{
    char *part[PARTS_MOST], *kind[PARTS_MOST], *save;
    char *address = strtok_r(line->text, " \t\r", &save);
    char *pattern = address ? strtok_r(NULL, " \t\r", &save) : NULL;
    int n, m, above = -1;

    if (!address || address[0] == '#')
        return 0;
    if (!pattern || strtok_r(NULL, " \t\r", &save))
        return refuse_line(line, "expected an address and its pattern");
    n = split(address, part);
    m = split(pattern, kind);
    if (n < 1 || n != m)
        return refuse_line(line,
                           "the address and its pattern differ in length");
    if (check_pattern(line, kind, n, &fabric->blocks) < 0)
        return -1;
    for (int i = 0; i < n - 1; i++) {
        struct plait_error why = {""};
        int index = plait_fabric_add_switch(fabric, part[i], line->err);

        if (index < 0)
            return -1;
        if (above >= 0 &&
            plait_fabric_hang_switch(fabric, index, above, &why) < 0)
            return refuse_line(line, why.text);
        above = index;
    }
    return above < 0
               ? 0
               : plait_fabric_hang_node(fabric, part[n - 1], above, line->err);
}

int plait_fabric_read_addresses(struct plait_fabric *fabric, const char *name,
                                const char *text, size_t size,
                                struct plait_error *err)
{
    struct line line = {.file = name, .err = err};
    const char *end = text + size;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((stop ? stop : end) - text);

        line.number++;
        if (n > LINE_LONGEST)
            return refuse_line(&line, "the line is too long for an address");
        memcpy(line.text, text, n);
        line.text[n] = '\0';
        if (read_line(fabric, &line) < 0)
            return -1;
        text += n + (stop != NULL);
    }
    return 0;
}
