/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_CAPTURE_H
#define PLAIT_TOPOLOGY_BASE_CAPTURE_H

#include <stddef.h>

/* Run a program (no shell; looked for on PATH where the name has no slash)
 * and return what it prints on standard output, and with `both` on standard
 * error too, with a NUL after it: at most 64 MiB, in at most `seconds`.
 * NULL with errno where it cannot be run, takes longer, or prints more. What
 * it ended with, as waitpid() says, is in *status. */
char *plait_capture(char *const argv[], int both, int seconds, size_t *size,
                    int *status);

#endif
