/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/text.h"
#include "topology/fabric/build.h"

/* What ibnetdiscover prints: a paragraph per device, headed by a line
 *     Switch  36 "S-<guid>"   # "description" ...
 * or Ca or Rt, followed by a line per port in use
 *     [19]  "H-<guid>"[1](<port guid>)  # "node1 mlx5_0" lid 4 4xHDR
 * Only the paragraphs of switches are needed; a host's name is the first
 * word of its adapter's description, and a switch is called by its own. The
 * tree follows from the distance to the hosts: leaves carry them, spines join
 * leaves, and so on. Adapters of one host on several leaves (rails) make those
 * leaves one. */

struct link {
    int from, to; /* switches, or a switch and a host */
};

struct links {
    struct link *link;
    int count, room;
};

struct reader {
    struct plait_fabric *fabric;
    const char *file;
    int line;
    struct plait_error *err;
    struct plait_names hosts;
    struct links up;    /* switch to switch, as seen from both ends */
    struct links down;  /* switch to host */
    int current;        /* the switch whose ports are listed, -1 none */
    char **description; /* [room] of the switches, NULL none */
    int room;
};

static int refuse_line(const struct reader *r, const char *what)
{
    errno = EINVAL;
    return plait_errorf(r->err, "%s:%d: %s", r->file, r->line, what);
}

static int links_add(struct reader *r, struct links *links, int from, int to)
{
    if (links->count == links->room) {
        int room = links->room ? 2 * links->room : 256;
        struct link *grown =
            realloc(links->link, (size_t)room * sizeof(*grown));

        if (!grown)
            return plait_errorf(r->err, "out of memory");
        links->link = grown;
        links->room = room;
    }
    links->link[links->count].from = from;
    links->link[links->count++].to = to;
    return 0;
}

/* The text between the next pair of quotes of a line; returns what follows
 * it, or NULL if there is none. */
static const char *quoted(const char *p, const char *end, char *buf, size_t n)
{
    const char *open = memchr(p, '"', (size_t)(end - p)), *close;
    size_t length = 0;

    if (!open)
        return NULL;
    close = memchr(open + 1, '"', (size_t)(end - open - 1));
    if (!close)
        return NULL;
    for (p = open + 1; p < close; p++)
        if (length < n - 1)
            buf[length++] = *p;
    buf[length] = '\0';
    return close + 1;
}

static int read_port(struct reader *r, const char *p, const char *end)
{
    char peer[64], name[256];
    const char *rest = quoted(p, end, peer, sizeof(peer));

    if (r->current < 0)
        return 0;
    if (!rest)
        return refuse_line(
            r, "expected a port such as [1] \"H-0002c903000e0a72\"[1]");
    if (peer[0] == 'S') {
        int to = plait_fabric_add_switch(r->fabric, peer, r->err);

        return to < 0 ? -1 : links_add(r, &r->up, r->current, to);
    }
    if (peer[0] != 'H')
        return 0; /* a router */
    if (!quoted(rest, end, name, sizeof(name)) || !name[0])
        return refuse_line(r,
                           "the adapter has no description to name its host");
    if (strstr(name, "Aggregation Node"))
        return 0; /* part of a switch */
    name[strcspn(name, " ")] = '\0';
    return links_add(r, &r->down, r->current, plait_names_add(&r->hosts, name));
}

/* Keep the description of the current switch. */
static int note_description(struct reader *r, const char *p, const char *end)
{
    char text[256];

    if (!quoted(p, end, text, sizeof(text)) || !text[0] ||
        !plait_text_is_clean(text))
        return 0;
    if (r->current >= r->room) {
        int room = 2 * r->current + 64;
        char **grown = realloc(r->description, (size_t)room * sizeof(*grown));

        if (!grown)
            return plait_errorf(r->err, "out of memory");
        memset(grown + r->room, 0, (size_t)(room - r->room) * sizeof(*grown));
        r->description = grown;
        r->room = room;
    }
    free(r->description[r->current]);
    r->description[r->current] = strdup(text);
    return r->description[r->current] ? 0
                                      : plait_errorf(r->err, "out of memory");
}

/* A managed switch says "MF0;NAME:MODEL/U1", of which people know NAME. */
static void shorten(const char *text, char *name, size_t size)
{
    const char *at = strncmp(text, "MF0;", 4) == 0 ? text + 4 : text;
    size_t n = at == text ? strlen(text) : strcspn(at, ":");

    snprintf(name, size, "%.*s", (int)(n ? n : strlen(at)), at);
}

static int read_line(struct reader *r, const char *p, const char *end)
{
    char name[64];

    while (p < end && isspace((unsigned char)*p))
        p++;
    if (p == end || *p == '#')
        return 0;
    if (*p == '[')
        return read_port(r, p, end);
    if (end - p > 6 && strncmp(p, "Switch", 6) == 0) {
        const char *rest = quoted(p, end, name, sizeof(name));

        if (!rest)
            return refuse_line(
                r, "expected a switch such as Switch 36 \"S-0002c902\"");
        r->current = plait_fabric_add_switch(r->fabric, name, r->err);
        return r->current < 0 ? -1 : note_description(r, rest, end);
    }
    if (end - p > 2 && (strncmp(p, "Ca", 2) == 0 || strncmp(p, "Rt", 2) == 0)) {
        r->current = -1;
        return 0;
    }
    if (!memchr(p, '=', (size_t)(end - p)))
        return refuse_line(r, "this is not a line of ibnetdiscover");
    return 0;
}

/* Find the leaves. A management host on a spine does not make it a leaf: a
 * switch is no leaf if most of the switches around it carry more hosts than it
 * does. */
static void find_leaves(const struct reader *r, const int *hosts, int *level)
{
    int n = r->fabric->switches.count;
    int *around = level + n; /* links; links to busier switches */
    int *busier = level + 2 * n;

    for (int i = 0; i < r->up.count; i++) {
        const struct link *link = &r->up.link[i];

        around[link->from]++;
        busier[link->from] += hosts[link->to] > hosts[link->from];
    }
    for (int i = 0; i < n; i++)
        level[i] = hosts[i] && 2 * busier[i] <= around[i] ? 1 : 0;
}

/* Level by level: a switch that has no level yet and is linked to one of level
 * k gets k + 1. */
static void find_levels(const struct reader *r, int *level)
{
    int raised = 1;

    for (int k = 1; raised; k++) {
        raised = 0;
        for (int i = 0; i < r->up.count; i++) {
            const struct link *link = &r->up.link[i];

            if (level[link->from] == k && level[link->to] == 0) {
                level[link->to] = k + 1;
                raised = 1;
            }
        }
    }
}

static int link_switches(struct reader *r, const int *level)
{
    for (int i = 0; i < r->down.count; i++) {
        const struct link *link = &r->down.link[i];

        if (link->to < 0)
            return plait_errorf(r->err, "out of memory");
        if (level[link->from] == 1 &&
            plait_fabric_hang_node(r->fabric, r->hosts.name[link->to],
                                   link->from, r->err) < 0)
            return -1;
    }
    for (int i = 0; i < r->up.count; i++) {
        const struct link *link = &r->up.link[i];
        struct plait_error why;

        /* Leaves that rails have united may share spines already. */
        if (level[link->to] == level[link->from] + 1 && level[link->from] &&
            plait_fabric_hang_switch(r->fabric, link->from, link->to, &why) < 0)
            return plait_errorf(r->err, "%s: %s", r->file, why.text);
    }
    for (int i = 0; i < r->down.count; i++) {
        const struct link *link = &r->down.link[i];

        if (level[link->from] != 1 &&
            plait_names_find(&r->fabric->nodes, r->hosts.name[link->to]) < 0 &&
            plait_fabric_hang_node(r->fabric, r->hosts.name[link->to],
                                   link->from, r->err) < 0)
            return -1;
    }
    return 0;
}

static void format_label(const char *description, bool whole, char *name,
                         size_t size)
{
    if (whole)
        snprintf(name, size, "%s", description);
    else
        shorten(description, name, size);
}

/* Label the switches that have none yet by their descriptions, whole or
 * shortened, where no other switch has the same. */
static int label_unique(struct reader *r, bool whole)
{
    int n = r->fabric->switches.count < r->room ? r->fabric->switches.count
                                                : r->room;
    int *first = malloc(((size_t)n + 1) * sizeof(*first)), rc = first ? 0 : -1;
    struct plait_names seen = {0};
    char name[256];

    for (int i = 0; i < n && rc == 0; i++) {
        int known = seen.count, at;

        if (!r->description[i])
            continue;
        format_label(r->description[i], whole, name, sizeof(name));
        at = plait_names_add(&seen, name);
        rc = at < 0 ? -1 : 0;
        if (rc == 0)
            first[at] = at < known ? -1 : i; /* -1: not this one alone */
    }
    for (int at = 0; at < seen.count && rc == 0; at++) {
        char **label = first[at] < 0 ? NULL : &r->fabric->label[first[at]];

        if (label && !*label && !(*label = strdup(seen.name[at])))
            rc = -1;
    }
    free(first);
    plait_names_clear(&seen);
    return rc;
}

/* Descriptions that several switches have, as those of unmanaged ones, are
 * told apart by the GUID. */
static int label_rest(struct reader *r)
{
    for (int i = 0; i < r->fabric->switches.count && i < r->room; i++) {
        const char *id = r->fabric->switches.name[i];
        size_t size =
            r->description[i] ? strlen(r->description[i]) + strlen(id) + 4 : 0;

        if (!size || r->fabric->label[i])
            continue;
        r->fabric->label[i] = malloc(size);
        if (!r->fabric->label[i])
            return -1;
        snprintf(r->fabric->label[i], size, "%s (%s)", r->description[i], id);
    }
    return 0;
}

static int label_switches(struct reader *r)
{
    r->fabric->label = calloc((size_t)r->fabric->switches.count + 1,
                              sizeof(*r->fabric->label));
    if (r->fabric->label && label_unique(r, false) == 0 &&
        label_unique(r, true) == 0 && label_rest(r) == 0)
        return 0;
    return plait_errorf(r->err, "out of memory");
}

static int build(struct reader *r)
{
    int n = r->fabric->switches.count, rc;
    int *hosts = calloc((size_t)n * 4 + 1, sizeof(*hosts));
    int *level = hosts + n;

    if (!hosts)
        return plait_errorf(r->err, "out of memory");
    if (r->down.count == 0) {
        free(hosts);
        errno = EINVAL;
        return plait_errorf(r->err, "%s: it contains no switch with a host",
                            r->file);
    }
    for (int i = 0; i < r->down.count; i++)
        hosts[r->down.link[i].from]++;
    find_leaves(r, hosts, level);
    find_levels(r, level);
    rc = link_switches(r, level);
    free(hosts);
    return rc;
}

int plait_fabric_read_ibnetdiscover(struct plait_fabric *fabric,
                                    const char *name, const char *text,
                                    size_t size, struct plait_error *err)
{
    struct reader r = {
        .fabric = fabric, .file = name, .err = err, .current = -1};
    const char *end = text + size;
    int rc = 0;

    while (text < end && rc == 0) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));

        r.line++;
        rc = read_line(&r, text, stop ? stop : end);
        text = stop ? stop + 1 : end;
    }
    if (rc == 0)
        rc = build(&r);
    if (rc == 0)
        rc = label_switches(&r);
    for (int i = 0; i < r.room; i++)
        free(r.description[i]);
    free(r.description);
    plait_names_clear(&r.hosts);
    free(r.up.link);
    free(r.down.link);
    return rc;
}
