/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topology/base/hostlist.h"
#include "topology/fabric/build.h"

/* topology.conf(5), tree and block, and what `scontrol show topology` prints
 * of either (22.05 to 25.11): lines of Key=Value. scontrol repeats all nodes
 * below a switch in its Nodes, and aggregated blocks as lines of their own. */

enum key {
    SWITCH_NAME,
    SWITCHES,
    NODES,
    LINK_SPEED,
    LEVEL,
    BLOCK_NAME,
    BLOCK_SIZES,
    BLOCK_INDEX,
    BLOCK_SIZE,
    AGGREGATED,
    NKEYS
};

static const char *const key_names[NKEYS] = {
    "SwitchName", "Switches",   "Nodes",      "LinkSpeed", "Level",
    "BlockName",  "BlockSizes", "BlockIndex", "BlockSize", "AggregatedBlock"};

struct value {
    const char *text;
    size_t length;
};

/* One line of the file, kept until all of them are read. */
struct record {
    int line;
    struct value value[NKEYS];
};

struct reader {
    struct plait_fabric *fabric;
    const char *name;
    struct plait_error *err;
    struct record *records;
    int count, room;
    const struct record *current;
    int target; /* switch that names are hung below */
};

static int refuse_line(const struct reader *r, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse_line(const struct reader *r, int line, const char *fmt, ...)
{
    char what[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    errno = EINVAL;
    return plait_errorf(r->err, "%s:%d: %s", r->name, line, what);
}

static int find_key(const char *text, size_t n)
{
    for (int i = 0; i < NKEYS; i++)
        if (strlen(key_names[i]) == n &&
            strncasecmp(key_names[i], text, n) == 0)
            return i;
    return -1;
}

/* The first key of what scontrol prints of topology/torus3d and ring (26.05).
 */
static bool is_unswitched(const char *text, size_t n)
{
    return (n == 9 && strncasecmp(text, "TorusName", n) == 0) ||
           (n == 8 && strncasecmp(text, "RingName", n) == 0);
}

/* The "Key=Value" at *p; *p moves behind it. */
static int read_pair(struct reader *r, struct record *record, const char **p,
                     const char *end)
{
    const char *start = *p, *stop = start, *equals;
    int key;

    while (stop < end && !isspace((unsigned char)*stop))
        stop++;
    equals = memchr(start, '=', (size_t)(stop - start));
    if (!equals)
        return refuse_line(r, record->line, "\"%.*s\" is not a Key=Value pair",
                           (int)(stop - start > 60 ? 60 : stop - start), start);
    key = find_key(start, (size_t)(equals - start));
    if (key < 0 && is_unswitched(start, (size_t)(equals - start)))
        return refuse_line(r, record->line,
                           "a torus or ring has no switches to plan by");
    if (key < 0)
        return refuse_line(
            r, record->line,
            "unknown key \"%.*s\"; expected SwitchName, Switches, Nodes, "
            "LinkSpeed, BlockName or BlockSizes",
            (int)(equals - start > 60 ? 60 : equals - start), start);
    if (record->value[key].text)
        return refuse_line(r, record->line, "%s is given twice",
                           key_names[key]);
    if (equals + 1 == stop)
        return refuse_line(r, record->line, "%s is empty", key_names[key]);
    record->value[key].text = equals + 1;
    record->value[key].length = (size_t)(stop - equals - 1);
    *p = stop;
    return 0;
}

static struct record *add_record(struct reader *r, int line)
{
    if (r->count == r->room) {
        int room = r->room ? 2 * r->room : 64;
        struct record *grown =
            realloc(r->records, (size_t)room * sizeof(*grown));

        if (!grown) {
            plait_errorf(r->err, "out of memory");
            return NULL;
        }
        r->records = grown;
        r->room = room;
    }
    memset(&r->records[r->count], 0, sizeof(*r->records));
    r->records[r->count].line = line;
    return &r->records[r->count++];
}

/* The text without comments. A backslash at the end of a line joins the next
 * one to it, also within a value; the newlines come behind what is joined, so
 * that lines keep their numbers. */
static char *join_lines(const char *text, size_t size, size_t *length)
{
    const char *end = text + size;
    char *joined = malloc(size + 1), *to = joined;
    size_t newlines = 0;

    while (joined && text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const char *next = stop ? stop + 1 : end, *hash;
        bool more;

        stop = stop ? stop : end;
        if ((hash = memchr(text, '#', (size_t)(stop - text))))
            stop = hash;
        while (stop > text && isspace((unsigned char)stop[-1]))
            stop--;
        more = stop > text && stop[-1] == '\\';
        memcpy(to, text, (size_t)(stop - text));
        to += stop - text - more;
        for (newlines++; newlines && !more; newlines--)
            *to++ = '\n';
        text = next;
    }
    *length = joined ? (size_t)(to - joined) : 0;
    return joined;
}

static int read_records(struct reader *r, const char *text, size_t size)
{
    const char *end = text + size;

    for (int line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        struct record *record = NULL;

        stop = stop ? stop : end;
        while (text < stop) {
            if (isspace((unsigned char)*text)) {
                text++;
                continue;
            }
            if (!record && !(record = add_record(r, line)))
                return -1;
            if (read_pair(r, record, &text, stop) < 0)
                return -1;
        }
        text = stop < end ? stop + 1 : end;
    }
    return 0;
}

static int copy_value(const struct reader *r, const struct record *record,
                      enum key key, char *buf, size_t n)
{
    const struct value *value = &record->value[key];

    if (value->length >= n)
        return refuse_line(r, record->line, "%s is longer than %zu characters",
                           key_names[key], n - 1);
    memcpy(buf, value->text, value->length);
    buf[value->length] = '\0';
    return 0;
}

/* Name all switches and blocks first, in the order of the lines, since a child
 * may be defined after its parent. */
static int define_switches(struct reader *r)
{
    char name[256];

    for (int i = 0; i < r->count; i++) {
        const struct record *record = &r->records[i];
        const struct value *value = record->value;
        int tree = value[SWITCH_NAME].text != NULL;
        int block = value[BLOCK_NAME].text != NULL;
        int before = r->fabric->switches.count;

        if (tree + block + (value[AGGREGATED].text != NULL) +
                (value[BLOCK_SIZES].text != NULL) !=
            1)
            return refuse_line(
                r, record->line,
                "expected one of SwitchName, BlockName and BlockSizes");
        if (!tree && !block)
            continue;
        if (copy_value(r, record, tree ? SWITCH_NAME : BLOCK_NAME, name,
                       sizeof(name)) < 0)
            return -1;
        if (block)
            r->fabric->blocks = 1;
        if (plait_fabric_add_switch(r->fabric, name, r->err) < 0)
            return -1;
        if (r->fabric->switches.count == before)
            return refuse_line(r, record->line, "%s %s is defined twice",
                               tree ? "switch" : "block", name);
        if (r->fabric->blocks && tree)
            return refuse_line(
                r, record->line,
                "SwitchName and BlockName in one file; Slurm uses "
                "either topology/tree or topology/block");
    }
    return 0;
}

static int hang_child(void *arg, const char *name)
{
    struct reader *r = arg;
    int child = plait_names_find(&r->fabric->switches, name);
    struct plait_error why;

    if (child < 0)
        return refuse_line(r, r->current->line, "switch %s is not defined",
                           name);
    if (plait_fabric_hang_switch(r->fabric, child, r->target, &why) < 0)
        return refuse_line(r, r->current->line, "%s", why.text);
    return 0;
}

static int hang_node(void *arg, const char *name)
{
    struct reader *r = arg;

    if (r->fabric->blocks && plait_names_find(&r->fabric->nodes, name) >= 0)
        return refuse_line(r, r->current->line, "node %s is in two blocks",
                           name);
    return plait_fabric_hang_node(r->fabric, name, r->target, r->err);
}

/* The nodes of a switch that also lists switches: those that no switch below
 * has (scontrol lists them all again). */
static int hang_rest(void *arg, const char *name)
{
    struct reader *r = arg;

    if (plait_names_find(&r->fabric->nodes, name) >= 0)
        return 0;
    return hang_node(arg, name);
}

static int expand(struct reader *r, const struct record *record, enum key key,
                  int (*add)(void *arg, const char *name))
{
    const struct value *value = &record->value[key];
    struct plait_error why = {""};

    r->current = record;
    if (!value->text)
        return 0;
    if (plait_hostlist_each(value->text, value->length, add, r, &why) == 0)
        return 0;
    if (why.text[0])
        return refuse_line(r, record->line, "%s: %s", key_names[key], why.text);
    return -1;
}

static int link_switches(struct reader *r, int with_switches)
{
    char name[256];

    for (int i = 0; i < r->count; i++) {
        const struct record *record = &r->records[i];
        const struct value *value = record->value;

        if ((!value[SWITCH_NAME].text && !value[BLOCK_NAME].text) ||
            (value[SWITCHES].text != NULL) != with_switches)
            continue;
        if (!value[SWITCHES].text && !value[NODES].text) {
            /* scontrol prints empty switches and blocks like this. */
            if (value[LEVEL].text || value[BLOCK_INDEX].text)
                continue;
            return refuse_line(r, record->line, "neither Nodes nor Switches");
        }
        if (copy_value(r, record,
                       value[SWITCH_NAME].text ? SWITCH_NAME : BLOCK_NAME, name,
                       sizeof(name)) < 0)
            return -1;
        r->target = plait_names_find(&r->fabric->switches, name);
        if (expand(r, record, SWITCHES, hang_child) < 0 ||
            expand(r, record, NODES, with_switches ? hang_rest : hang_node) < 0)
            return -1;
    }
    return 0;
}

/* Switches may be in a circle, which plait_fabric_parse() refuses: then one of
 * the circle. */
static int top_of(const struct plait_fabric *fabric, int index)
{
    int steps = fabric->switches.count;

    for (int up; (up = plait_fabric_parent(fabric, index)) >= 0 && steps > 0;
         steps--)
        index = up;
    return index;
}

/* scontrol's aggregated blocks come in the order of their size. */
static int join_block(void *arg, const char *name)
{
    struct reader *r = arg;
    int block = plait_names_find(&r->fabric->switches, name);

    if (block < 0)
        return refuse_line(r, r->current->line, "block %s is not defined",
                           name);
    block = top_of(r->fabric, block);
    if (block == r->target)
        return 0;
    return plait_fabric_hang_switch(r->fabric, block, r->target, r->err);
}

static int join_aggregated(struct reader *r)
{
    for (int i = 0; i < r->count; i++) {
        const struct record *record = &r->records[i];
        char name[256];

        if (!record->value[AGGREGATED].text)
            continue;
        if (copy_value(r, record, AGGREGATED, name, sizeof(name)) < 0)
            return -1;
        r->target = plait_fabric_add_switch(r->fabric, name, r->err);
        if (r->target < 0 || expand(r, record, AGGREGATED, join_block) < 0)
            return -1;
    }
    return 0;
}

int plait_fabric_join_blocks(struct plait_fabric *fabric, int nblocks,
                             int together, struct plait_error *err)
{
    for (int first = 0; first + together <= nblocks; first += together) {
        char name[600];
        int above;

        snprintf(name, sizeof(name), "%.250s..%.250s",
                 fabric->switches.name[first],
                 fabric->switches.name[first + together - 1]);
        above = plait_fabric_add_switch(fabric, name, err);
        if (above < 0)
            return -1;
        for (int i = first; i < first + together; i++) {
            int top = top_of(fabric, i);

            if (top != above &&
                plait_fabric_hang_switch(fabric, top, above, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* BlockSizes=8,16,32: nodes of a base block, then of aggregated blocks, each
 * a power of two of the first. */
static int read_sizes(struct reader *r, const struct record *record,
                      int nblocks)
{
    char text[256], *p = text, *end;
    long base = 0, before = 0;

    if (copy_value(r, record, BLOCK_SIZES, text, sizeof(text)) < 0)
        return -1;
    for (;;) {
        long size;

        if (!isdigit((unsigned char)*p))
            return refuse_line(r, record->line,
                               "BlockSizes=%s: expected numbers", text);
        size = strtol(p, &end, 10);
        if (!base)
            base = size;
        if (size < 1 || size > 1048576 || size <= before || size % base ||
            (size / base & (size / base - 1)))
            return refuse_line(
                r, record->line,
                "BlockSizes=%s: expected a base size and then growing "
                "powers of two of it, as in 4,8,16",
                text);
        if (size > base && plait_fabric_join_blocks(r->fabric, nblocks,
                                                    (int)(size / base), r->err))
            return -1;
        before = size;
        if (!*end)
            return 0;
        if (*end != ',')
            return refuse_line(r, record->line,
                               "BlockSizes=%s: expected numbers", text);
        p = end + 1;
    }
}

static int join_sizes(struct reader *r)
{
    int nblocks = r->fabric->switches.count, seen = 0;

    for (int i = 0; i < r->count; i++) {
        const struct record *record = &r->records[i];

        if (!record->value[BLOCK_SIZES].text)
            continue;
        if (seen++)
            return refuse_line(r, record->line, "BlockSizes is given twice");
        if (!r->fabric->blocks)
            return refuse_line(r, record->line,
                               "BlockSizes without any BlockName");
        if (read_sizes(r, record, nblocks) < 0)
            return -1;
    }
    return 0;
}

int plait_fabric_read_conf(struct plait_fabric *fabric, const char *name,
                           const char *text, size_t size,
                           struct plait_error *err)
{
    struct plait_error ignored;
    struct reader r = {
        .fabric = fabric, .name = name, .err = err ? err : &ignored};
    size_t length;
    char *joined = join_lines(text, size, &length);
    int rc = -1;

    if (!joined)
        plait_errorf(r.err, "out of memory");
    else if (read_records(&r, joined, length) == 0 &&
             define_switches(&r) == 0 && link_switches(&r, 0) == 0 &&
             link_switches(&r, 1) == 0 && join_sizes(&r) == 0 &&
             join_aggregated(&r) == 0)
        rc = 0;
    free(r.records);
    free(joined);
    return rc;
}
