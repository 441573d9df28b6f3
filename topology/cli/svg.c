/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/cli/svg.h"

#include <stdarg.h>

void svg_print_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, out);
    }
}

void svg_print_label(FILE *out, double x, double y, const char *class,
                     const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    svg_print_escaped(out, text);
    fputs("</text>\n", out);
}
