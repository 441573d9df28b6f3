/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRACE_PROFILE_H
#define PLAIT_RUNTIME_TRACE_PROFILE_H

#include <stdio.h>

/* Adds up how one thread spent its time. Every function accepts a NULL profile
 * and then does nothing. */
struct plait_profile;

struct plait_profile *plait_profile_create(void);
void plait_profile_destroy(struct plait_profile *profile);

/* A span of `seconds` that began at `start`, reported when it ends. Spans of a
 * thread are nested or disjoint; the time of nested spans is not counted for
 * the outer one. `name` counts up to its first digit: "forward 0.3" and
 * "forward 1.0" are the same. */
void plait_profile_span(struct plait_profile *profile, const char *track,
                        const char *name, double start, double seconds);
/* A span that ran concurrently with the thread. */
void plait_profile_beside(struct plait_profile *profile, const char *track,
                          const char *name, double seconds);

/* Prints a table: one line per track and name, in the order of their first
 * spans. Shares refer to the time of all spans together. */
void plait_profile_print(const struct plait_profile *profile, FILE *out);

#endif
