/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/text.h"

#include <stdarg.h>
#include <stdio.h>

void plait_text_add(struct plait_text *text, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text->at + text->used, text->size - text->used, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < text->size - text->used)
        text->used += (size_t)n;
    else
        text->at[text->used] = '\0';
}
