/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/cli/svg.h"

#include <stdarg.h>

void svg_print_head(FILE *out, int width, int height, const char *light,
                    const char *dark)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\">\n"
            "<style>text{font-family:'DejaVu Sans',Helvetica,Arial,sans-serif;"
            "fill:#1c2733}.weak{fill:#5b6b7b}.page{fill:#fff}%s"
            "@media(prefers-color-scheme:dark){text{fill:#e6edf3}"
            ".weak{fill:#9fb0c0}.page{fill:#12181f}%s}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" class=\"page\"/>\n",
            width, height, width, height, light, dark);
}

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

void svg_shorten(const char *text, size_t most, char *out, size_t size)
{
    size_t letters = 0, n = 0, end = 0;

    for (; text[n]; n++) {
        /* Where a letter begins, it may end before. */
        if (((unsigned char)text[n] & 0xc0) == 0x80)
            continue;
        if (letters + 1 == most)
            end = n;
        if (letters++ == most)
            break;
    }
    if (text[n])
        snprintf(out, size, "%.*s\u2026", (int)end, text);
    else
        snprintf(out, size, "%s", text);
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

void svg_print_title(FILE *out, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fputs("<title>", out);
    svg_print_escaped(out, text);
    fputs("</title>", out);
}
