/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_CAPTURE_H
#define PLAIT_TOPOLOGY_BASE_CAPTURE_H

#include <stddef.h>

/* Run a program (no shell; looked for on PATH where the name has no slash) and
 * return what it prints on standard output, and with `both` on standard error
 * too, with a NUL after it: at most 64 MiB, in at most `seconds` until it
 * closes its output. NULL with errno where it cannot be run, takes longer, or
 * prints more. *status is its exit status as waitpid() gives it. An ignored
 * SIGCHLD is ignored no longer. */
char *plait_capture(char *const argv[], int both, int seconds, size_t *size,
                    int *status);

/* Run work(arg, fd) in a child process, and return what it wrote to fd, with a
 * NUL after it. The child has no other file of this process, and is killed
 * where it takes longer than `seconds`: NULL with ETIMEDOUT. This call itself
 * never takes more than `seconds` + 1, whatever state the child is in. */
char *plait_capture_call(void (*work)(void *arg, int fd), void *arg,
                         int seconds, size_t *size);

#endif
