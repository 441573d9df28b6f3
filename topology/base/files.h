/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_FILES_H
#define PLAIT_TOPOLOGY_BASE_FILES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Let the process have so many files and connections open, beside a few
 * hundred others, as far as the hard limit goes: many systems begin with 1024.
 * Where it does not go so far, opening them says so. */
void plait_files_allow(size_t files);

/* Write all of it, whatever signals come between. -1 with errno. */
int plait_files_write(int fd, const char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
