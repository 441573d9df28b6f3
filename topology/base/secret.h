/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_SECRET_H
#define PLAIT_TOPOLOGY_BASE_SECRET_H

#include <stddef.h>

/* Fills `text` with size - 1 random hexadecimal digits (an even number, at most
 * 64) and a NUL, which nobody can guess. 0, or -1 with errno. */
int plait_secret_create(char *text, size_t size);

#endif
