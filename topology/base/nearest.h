/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_NEAREST_H
#define PLAIT_TOPOLOGY_BASE_NEAREST_H

/* The index of the name that `word` was probably meant to be: the first of
 * those that fewest letters have to be put in, left out or changed for, at
 * most three of them and not all; or -1. */
int plait_nearest(const char *word, const char *const *names, int n);

#endif
