/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_NEAREST_H
#define PLAIT_TOPOLOGY_BASE_NEAREST_H

/* The index of the name that `word` was probably meant to be: the first at the
 * smallest edit distance, which is at most 3 and half of the longer one's
 * length. -1: there is none. */
int plait_nearest(const char *word, const char *const *names, int n);

#endif
