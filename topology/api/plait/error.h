/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_ERROR_H
#define PLAIT_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* One line for a person: what was wrong, where, what would be right.
 * No newline, no "plait:" prefix; whoever prints it adds both. */
struct plait_error {
    char text[512];
};

/* Describe an error in `err` (which may be NULL) and return -1, so that a
 * parser can `return plait_errorf(err, ...)`. Keeps errno. */
int plait_errorf(struct plait_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
