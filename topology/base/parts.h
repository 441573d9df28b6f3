/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_PARTS_H
#define PLAIT_TOPOLOGY_BASE_PARTS_H

/* One path, or several that have a weight or a name each. */
struct plait_part {
    char *name; /* NULL: none */
    char *path;
    double weight; /* above 0; 1 where none is given */
};

struct plait_parts {
    int n;
    struct plait_part *at; /* malloc'ed, as are the texts */
};

/* Frees what it has, and makes it empty. */
void plait_parts_clear(struct plait_parts *parts);

/* The path of the first part, NULL if there is none. */
const char *plait_parts_path(const struct plait_parts *parts);

#endif
