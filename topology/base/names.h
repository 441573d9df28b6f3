/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_NAMES_H
#define PLAIT_TOPOLOGY_BASE_NAMES_H

/* A set of names, each with the number of names added before it: 0, 1, ...
 * Zero-initialise; names are copied. */
struct plait_names {
    char **name;
    int count, room;
    int *slot; /* open addressing: index + 1, 0 free */
    int nslots;
};

/* The index of `name`, added if it is new; -1 with errno. */
int plait_names_add(struct plait_names *names, const char *name);
/* The index of `name`, or -1. */
int plait_names_find(const struct plait_names *names, const char *name);
/* Frees what it holds, keeps errno. */
void plait_names_clear(struct plait_names *names);

#endif
