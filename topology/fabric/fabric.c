/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/fabric/build.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topology/base/text.h"

#define FILE_MOST (256u << 20)

static int find_root(const struct plait_fabric *fabric, int index)
{
    while (fabric->same[index] != index)
        index = fabric->same[index];
    return index;
}

/* Two switches become one, and so do those above them. The older one stands
 * for both, so that the order of the lines that join them does not matter. */
static void unite(struct plait_fabric *fabric, int a, int b)
{
    while ((a = find_root(fabric, a)) != (b = find_root(fabric, b))) {
        int older = a < b ? a : b, newer = a < b ? b : a;

        fabric->same[newer] = older;
        a = fabric->above[older];
        b = fabric->above[newer];
        if (a < 0)
            fabric->above[older] = b;
        if (a < 0 || b < 0)
            return;
    }
}

static int resize(int **array, int room)
{
    int *grown = realloc(*array, (size_t)room * sizeof(**array));

    if (!grown)
        return -1;
    *array = grown;
    return 0;
}

/* The index of a name, added if new. */
static int add_name(struct plait_names *names, const char *name,
                    struct plait_error *err)
{
    int index;

    if (!plait_text_is_clean(name)) {
        errno = EINVAL;
        return plait_errorf(err, "%.200s: a name cannot have such characters",
                            name);
    }
    index = plait_names_add(names, name);
    return index < 0 ? plait_errorf(err, "out of memory") : index;
}

int plait_fabric_add_switch(struct plait_fabric *fabric, const char *name,
                            struct plait_error *err)
{
    int before = fabric->switches.count, room = fabric->switches.room;
    int index = add_name(&fabric->switches, name, err);

    if (index < 0)
        return -1;
    if (index < before)
        return index;
    if (fabric->switches.room > room &&
        (resize(&fabric->above, fabric->switches.room) < 0 ||
         resize(&fabric->same, fabric->switches.room) < 0 ||
         resize(&fabric->height, fabric->switches.room) < 0))
        return plait_errorf(err, "out of memory");
    fabric->above[index] = -1;
    fabric->same[index] = index;
    fabric->height[index] = 0;
    return index;
}

int plait_fabric_hang_node(struct plait_fabric *fabric, const char *node,
                           int below, struct plait_error *err)
{
    int before = fabric->nodes.count, room = fabric->nodes.room;
    int index = add_name(&fabric->nodes, node, err);

    if (index < 0)
        return -1;
    if (index < before) {
        unite(fabric, fabric->leaf[index], below);
        return 0;
    }
    if (fabric->nodes.room > room &&
        resize(&fabric->leaf, fabric->nodes.room) < 0)
        return plait_errorf(err, "out of memory");
    fabric->leaf[index] = below;
    return 0;
}

int plait_fabric_hang_switch(struct plait_fabric *fabric, int child, int below,
                             struct plait_error *err)
{
    child = find_root(fabric, child);
    if (child == find_root(fabric, below)) {
        errno = EINVAL;
        return plait_errorf(err, "switch %s is below itself",
                            fabric->switches.name[child]);
    }
    if (fabric->above[child] < 0)
        fabric->above[child] = below;
    else
        unite(fabric, fabric->above[child], below);
    return 0;
}

int plait_fabric_parent(const struct plait_fabric *fabric, int index)
{
    int self = find_root(fabric, index), above = fabric->above[self];

    if (above < 0)
        return -1;
    above = find_root(fabric, above);
    return above == self ? -1 : above;
}

/* Raise the switches above `index` to their height; -1 where they form a
 * circle. */
static int raise_above(struct plait_fabric *fabric, int index,
                       struct plait_error *err)
{
    int height = fabric->height[index];

    for (int up; (up = plait_fabric_parent(fabric, index)) >= 0; index = up) {
        if (++height > fabric->switches.count) {
            errno = EINVAL;
            return plait_errorf(err, "switch %s is below itself",
                                fabric->switches.name[index]);
        }
        if (fabric->height[up] >= height)
            break; /* the switches above it are high enough too */
        fabric->height[up] = height;
    }
    return 0;
}

/* Check that there is no circle, and compute heights and levels. */
static int finish_fabric(struct plait_fabric *fabric, struct plait_error *err)
{
    for (int i = 0; i < fabric->switches.count; i++)
        fabric->height[i] = 1;
    for (int i = 0; i < fabric->switches.count; i++)
        if (find_root(fabric, i) == i && raise_above(fabric, i, err) < 0)
            return -1;
    fabric->levels = 0;
    for (int i = 0; i < fabric->switches.count; i++) {
        fabric->height[i] = fabric->height[find_root(fabric, i)];
        if (fabric->height[i] > fabric->levels)
            fabric->levels = fabric->height[i];
    }
    for (int i = 0; i < fabric->nodes.count; i++)
        fabric->leaf[i] = find_root(fabric, fabric->leaf[i]);
    return 0;
}

static bool starts(const char *line, size_t n, const char *with)
{
    return n >= strlen(with) && strncasecmp(line, with, strlen(with)) == 0;
}

/* The first entry of a YAML list, whichever of its keys comes first. */
static bool starts_item(const char *line, size_t n)
{
    return n && *line == '-' && (n == 1 || isspace((unsigned char)line[1]));
}

/* What scontrol prints on a cluster without a topology. */
static bool is_none(const char *text, size_t size)
{
    return starts(text, size, "No topology information");
}

/* The reader for the format that the first significant line shows. */
static plait_fabric_reader *guess(const char *text, size_t size)
{
    const char *end = text + size;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const char *next = stop ? stop + 1 : end;
        size_t n = (size_t)((stop ? stop : end) - text);
        const char *blank;

        while (n && (*text == ' ' || *text == '\t')) {
            text++;
            n--;
        }
        blank = n ? memchr(text, ' ', n) : NULL;
        if (starts(text, n, "vendid=") || starts(text, n, "switchguid=") ||
            starts(text, n, "# Topology file: generated"))
            return plait_fabric_read_ibnetdiscover;
        if (starts(text, n, "---") || starts(text, n, "%YAML") ||
            starts_item(text, n) || starts(text, n, "switches:") ||
            starts(text, n, "blocks:") || starts(text, n, "[") ||
            starts(text, n, "{"))
            return plait_fabric_read_yaml;
        if (blank && *text != '#' && !memchr(text, '=', n))
            return plait_fabric_read_addresses;
        if (n && *text != '#' && *text != '\r')
            return plait_fabric_read_conf;
        text = next;
    }
    return plait_fabric_read_conf;
}

struct plait_fabric *plait_fabric_create_flat(void)
{
    return calloc(1, sizeof(struct plait_fabric));
}

static struct plait_fabric *parse_wish(const char *name, const char *text,
                                       size_t size,
                                       struct plait_fabric_wish *wish,
                                       struct plait_error *err)
{
    struct plait_fabric *fabric = plait_fabric_create_flat();
    struct plait_error why;

    if (!fabric) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    fabric->wish = wish;
    if (memchr(text, '\0', size)) {
        errno = EINVAL;
        plait_errorf(err, "%s: not a text file", name);
        goto error;
    }
    if (is_none(text, size))
        return fabric;
    if (guess(text, size)(fabric, name, text, size, err) < 0)
        goto error;
    if (finish_fabric(fabric, &why) < 0) {
        plait_errorf(err, "%s: %s", name, why.text);
        goto error;
    }
    fabric->wish = NULL;
    return fabric;
error:
    plait_fabric_destroy(fabric);
    return NULL;
}

struct plait_fabric *plait_fabric_parse(const char *name, const char *text,
                                        size_t size, struct plait_error *err)
{
    return parse_wish(name, text, size, NULL, err);
}

static char *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "re");
    size_t room = 65536, used = 0, n;
    char *text = NULL, *grown;

    if (!file)
        return NULL;
    for (;;) {
        if (room > FILE_MOST) {
            errno = EFBIG;
            goto error;
        }
        if (!(grown = realloc(text, room)))
            goto error;
        text = grown;
        n = fread(text + used, 1, room - used, file);
        used += n;
        if (n == 0)
            break;
        if (used == room)
            room *= 2;
    }
    if (ferror(file))
        goto error;
    fclose(file);
    *size = used;
    return text;
error:
    free(text);
    fclose(file);
    return NULL;
}

struct plait_fabric *plait_fabric_create(const char *path,
                                         struct plait_error *err)
{
    struct plait_fabric *fabric;
    size_t size;
    char *text = read_whole(path, &size);

    if (!text) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    fabric = plait_fabric_parse(path, text, size, err);
    free(text);
    return fabric;
}

/* The first topology of the file that has all the nodes. */
static struct plait_fabric *find_other(const char *path, const char *text,
                                       size_t size, int count,
                                       const char *const *nodes, int n)
{
    struct plait_error ignored;

    for (int i = 0; i < count; i++) {
        struct plait_fabric_wish wish = {.index = i};
        struct plait_fabric *other =
            parse_wish(path, text, size, &wish, &ignored);

        if (other && other->switches.count &&
            plait_fabric_lacks(other, nodes, n) < 0)
            return other;
        plait_fabric_destroy(other);
    }
    return NULL;
}

struct plait_fabric *plait_fabric_create_for(const char *path,
                                             const char *topology,
                                             const char *const *nodes, int n,
                                             struct plait_error *err)
{
    struct plait_fabric_wish wish = {.name = topology, .index = -1};
    struct plait_fabric *fabric, *other = NULL;
    size_t size;
    char *text = read_whole(path, &size);

    if (!text) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    fabric = parse_wish(path, text, size, &wish, err);
    if (topology && fabric && !wish.count) {
        errno = EINVAL;
        plait_errorf(err, "%s: its topology has no name; leave out --topology",
                     path);
        plait_fabric_destroy(fabric);
        fabric = NULL;
    }
    if (!topology && wish.count > 1 &&
        (!fabric || !fabric->switches.count ||
         plait_fabric_lacks(fabric, nodes, n) >= 0))
        other = find_other(path, text, size, wish.count, nodes, n);
    free(text);
    if (!other)
        return fabric;
    plait_fabric_destroy(fabric);
    return other;
}

void plait_fabric_destroy(struct plait_fabric *fabric)
{
    int saved = errno;

    if (!fabric)
        return;
    for (int i = 0; fabric->label && i < fabric->switches.count; i++)
        free(fabric->label[i]);
    free(fabric->label);
    free(fabric->topology);
    plait_names_clear(&fabric->nodes);
    plait_names_clear(&fabric->switches);
    free(fabric->leaf);
    free(fabric->above);
    free(fabric->same);
    free(fabric->height);
    free(fabric);
    errno = saved;
}

int plait_fabric_levels(const struct plait_fabric *fabric)
{
    return fabric->levels;
}

int plait_fabric_switches(const struct plait_fabric *fabric)
{
    return fabric->switches.count;
}

const char *plait_fabric_switch_name(const struct plait_fabric *fabric,
                                     int index)
{
    if (fabric->label && fabric->label[index])
        return fabric->label[index];
    return fabric->switches.name[index];
}

int plait_fabric_height(const struct plait_fabric *fabric, int index)
{
    return fabric->height[index];
}

int plait_fabric_leaf(const struct plait_fabric *fabric, const char *node)
{
    int index = plait_names_find(&fabric->nodes, node);

    return index < 0 ? -1 : fabric->leaf[index];
}

bool plait_fabric_has_blocks(const struct plait_fabric *fabric)
{
    return fabric->blocks;
}

int plait_fabric_lacks(const struct plait_fabric *fabric,
                       const char *const *nodes, int n)
{
    for (int i = 0; fabric->switches.count && i < n; i++)
        if (plait_fabric_leaf(fabric, nodes[i]) < 0)
            return i;
    return -1;
}

const char *plait_fabric_topology(const struct plait_fabric *fabric)
{
    return fabric->topology ? fabric->topology : "";
}

int plait_fabric_distance(const struct plait_fabric *fabric, const char *a,
                          const char *b)
{
    int x = plait_fabric_leaf(fabric, a), y = plait_fabric_leaf(fabric, b);

    if (strcmp(a, b) == 0)
        return 0;
    while (x >= 0 && y >= 0 && x != y) {
        if (fabric->height[x] <= fabric->height[y])
            x = plait_fabric_parent(fabric, x);
        else
            y = plait_fabric_parent(fabric, y);
    }
    return x >= 0 && x == y ? fabric->height[x] : fabric->levels + 1;
}
