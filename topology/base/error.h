/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_ERROR_H
#define PLAIT_TOPOLOGY_BASE_ERROR_H

#include "topology/api/plait/error.h" /* struct plait_error */

#ifdef __cplusplus
extern "C" {
#endif

/* Describe an error, without "plait:" in front, in `err` (which may be NULL)
 * and return -1, so that a parser can `return plait_errorf(err, ...)`. The text
 * is cleaned (plait_text_clean), so that what was read from others makes no
 * line and no escape sequence. Keeps errno. */
int plait_errorf(struct plait_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Put `before` in front of the text. An empty one stays: what is wrong is said
 * by another rank. Returns -1 and keeps errno. */
int plait_error_prefix(struct plait_error *err, const char *before);

#ifdef __cplusplus
}
#endif
#endif
