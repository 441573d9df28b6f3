/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_TEXT_H
#define PLAIT_TOPOLOGY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A text that is put together in a buffer: {buffer, its size, 0}. */
struct plait_text {
    char *at;
    size_t size, used;
};

/* Adds as printf() does; what does not fit whole is left out. */
__attribute__((format(printf, 2, 3))) void
plait_text_add(struct plait_text *text, const char *format, ...);

/* Makes a text that others can have written (names, files, messages, the
 * environment) safe to print, in place: each control character, the end of
 * a line and the tab among them, each character that changes the direction of
 * text, and each byte that is not UTF-8 becomes '?'. All else stays. The text
 * grows no longer. */
void plait_text_clean(char *text);
/* Whether plait_text_clean() would leave it as it is. */
bool plait_text_is_clean(const char *text);

/* Room for a path as plait_text_quote() writes it. */
#define PLAIT_QUOTED_MAX 4200

/* A word as a shell takes it in a command that is printed to be pasted: itself,
 * or in `room`, in quotes. A word that does not fit, as a path of many quotes,
 * stays as it is. */
const char *plait_text_quote(const char *word, char room[PLAIT_QUOTED_MAX]);

#ifdef __cplusplus
}
#endif

#endif
