/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_ERROR_H
#define PLAIT_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* One line for a person: what was wrong, where, what would be right. No
 * newline. The caller owns it; a function that fails fills it in, one that
 * succeeds leaves it alone. Functions take NULL from a caller that does not
 * need the text. */
struct plait_error {
    char text[512];
};

#ifdef __cplusplus
}
#endif
#endif
