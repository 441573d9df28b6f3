/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_TEXT_H
#define PLAIT_TOPOLOGY_BASE_TEXT_H

#include <stddef.h>

/* A text that is put together in a buffer: {buffer, its size, 0}. */
struct plait_text {
    char *at;
    size_t size, used;
};

/* Adds as printf() does; what does not fit whole is left out. */
__attribute__((format(printf, 2, 3))) void
plait_text_add(struct plait_text *text, const char *format, ...);

#endif
