/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_QUEUE_H
#define PLAIT_KERNELS_QUEUE_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* Every implementation's struct plait_queue begins with this, so that
 * plait_queue_error() works for all of them. Inline: the CUDA module must not
 * need symbols of the program that loads it. */
struct plait_queue_head {
    int failed; /* errno of the first failure, 0 if none */
    char error[160];
    char note[200]; /* empty: none */
};

/* Keeps the first failure; -1 with errno. */
static inline int __attribute__((format(printf, 3, 4)))
plait_queue_fail(struct plait_queue_head *head, int errnum, const char *fmt,
                 ...)
{
    va_list ap;

    if (head->failed == 0) {
        va_start(ap, fmt);
        vsnprintf(head->error, sizeof(head->error), fmt, ap);
        va_end(ap);
        head->failed = errnum;
    }
    errno = head->failed;
    return -1;
}

/* Keeps the first remark. */
static inline void __attribute__((format(printf, 2, 3)))
plait_queue_note(struct plait_queue_head *head, const char *fmt, ...)
{
    va_list ap;

    if (head->note[0] != '\0')
        return;
    va_start(ap, fmt);
    vsnprintf(head->note, sizeof(head->note), fmt, ap);
    va_end(ap);
}

#endif
