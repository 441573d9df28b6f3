/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PLUGSTACK_H
#define PLAIT_PLUGSTACK_H

#include "options.h"
#include "topology/error.h"

/* The arguments after spank_plait.so in plugstack.conf(5):
 *   cache=DIR|none     where each node keeps what it looks like
 *   site=FILE          the site file
 *   NAME=VALUE         what --NAME is in jobs that use our flags, but not it
 *   force-NAME=VALUE   the same, and no user may ask for anything else */
struct plait_plugstack {
    const char *cache; /* NULL: none */
    const char *site;  /* NULL: the default place, if it is there */
    const char *value[PLAIT_NOPTIONS]; /* NULL: no default */
    unsigned forced;                   /* bit per option */
};

/* The texts stay the caller's. Each argument that is not understood is told
 * to `complain` and left out; the rest still counts. */
void plait_plugstack_parse(struct plait_plugstack *plugstack, int ac, char **av,
                           void (*complain)(const char *text));

/* Fill in the defaults of a job that gave some flag. -1, with the reason: it
 * asked for something that is not to be had here. */
int plait_plugstack_apply(const struct plait_plugstack *plugstack,
                          struct plait_options *options,
                          struct plait_error *err);

#endif
