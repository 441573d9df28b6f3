/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/names.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hash.h"

/* The number of slots is a power of two. */
static int slot_of(const struct plait_names *names, const char *name)
{
    uint64_t hash = plait_hash_text(PLAIT_HASH_START, name);
    int at = (int)(hash & (uint64_t)(names->nslots - 1));

    while (names->slot[at] && strcmp(names->name[names->slot[at] - 1], name))
        at = (at + 1) & (names->nslots - 1);
    return at;
}

static int grow(struct plait_names *names)
{
    int room = names->room ? 2 * names->room : 64;
    char **name = realloc(names->name, (size_t)room * sizeof(*name));
    int *slot;

    if (!name)
        return -1;
    names->name = name;
    slot = calloc((size_t)room * 2, sizeof(*slot));
    if (!slot)
        return -1;
    free(names->slot);
    names->slot = slot;
    names->nslots = room * 2;
    names->room = room;
    for (int i = 0; i < names->count; i++)
        slot[slot_of(names, names->name[i])] = i + 1;
    return 0;
}

int plait_names_add(struct plait_names *names, const char *name)
{
    int found = plait_names_find(names, name);

    if (found >= 0)
        return found;
    if (names->count == names->room && grow(names) < 0)
        return -1;
    if (!(names->name[names->count] = strdup(name)))
        return -1;
    names->slot[slot_of(names, name)] = names->count + 1;
    return names->count++;
}

int plait_names_find(const struct plait_names *names, const char *name)
{
    return names->nslots ? names->slot[slot_of(names, name)] - 1 : -1;
}

void plait_names_clear(struct plait_names *names)
{
    int saved = errno;

    for (int i = 0; i < names->count; i++)
        free(names->name[i]);
    free(names->name);
    free(names->slot);
    memset(names, 0, sizeof(*names));
    errno = saved;
}
