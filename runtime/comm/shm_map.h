/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SHM_MAP_H
#define PLAIT_RUNTIME_COMM_SHM_MAP_H

#include <stdbool.h>
#include <stddef.h>

/* Map shared memory of this name, `size` bytes, for munmap(); `create`: make
 * it, zeroed, where there is none yet. NULL with errno, and nothing is left of
 * what was made. Its memory is allocated at once: on a full file system a later
 * page fault would kill the process. */
void *plait_shm_map(const char *name, bool create, size_t size);

#endif
