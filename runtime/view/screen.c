/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/view/screen.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LABEL 10 /* columns of the axis */

struct plait_screen *plait_screen_create(int width, int height)
{
    struct plait_screen *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->width = width;
    s->height = height;
    s->cells = malloc((size_t)width * height);
    if (!s->cells) {
        free(s);
        return NULL;
    }
    memset(s->cells, ' ', (size_t)width * height);
    return s;
}

static void put_cell(struct plait_screen *s, int row, int column, char c)
{
    if (row >= 0 && row < s->height && column >= 0 && column < s->width)
        s->cells[(size_t)row * s->width + column] = c;
}

void plait_screen_put(struct plait_screen *s, int row, int column,
                      const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    /* Control characters, as a file's name may have, must not reach the
     * terminal. */
    for (int i = 0; text[i]; i++)
        put_cell(s, row, column + i,
                 text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
}

/* The cell of `at`: 0 where the range has no length, or is beyond a double. */
static int in_range(double at, double low, double high, int cells)
{
    double part = (at - low) / (high - low);

    if (!(part > 0))
        return 0;
    return part < 1 ? (int)(part * (cells - 1) + 0.5) : cells - 1;
}

static void find_range(const double *y, size_t n, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(y[i]))
            continue;
        *low = fmin(*low, y[i]);
        *high = fmax(*high, y[i]);
    }
    if (*low == *high) {
        *low -= 0.5;
        *high += 0.5;
    }
}

/* How many digits make the marks of an axis, `step` apart, differ. */
static int count_digits(double largest, double step)
{
    if (largest < 1e-3) /* the exponent takes the room */
        return 4;
    return (int)fmin(fmax(ceil(log10(largest / step)) + 1, 4), 6);
}

/* 68463 as "68.46k": all marks of an axis use the unit of its largest one, to
 * be comparable at a glance. */
static void put_mark(struct plait_screen *s, int row, int column, double v,
                     double largest, int digits)
{
    const char *unit = " kMGTP";

    for (; fabs(largest) >= 1e4 && unit[1]; unit++) {
        largest /= 1000;
        v /= 1000;
    }
    if (*unit == ' ')
        plait_screen_put(s, row, column, "%*.*g", LABEL - 2, digits, v);
    else
        plait_screen_put(s, row, column, "%*.*g%c", LABEL - 3, digits, v,
                         *unit);
}

static void put_axes(struct plait_screen *s, const struct plait_plot *p,
                     double low, double high, const double *x, size_t n)
{
    int bottom = p->top + p->rows - 1;
    double largest = fmax(fabs(low), fabs(high));
    int digits = count_digits(largest, 4 * (high - low) / (p->rows - 3));

    for (int row = 0; row < p->rows - 2; row++) {
        put_cell(s, p->top + row, p->left + LABEL - 1, '|');
        if (row % 4 == 0)
            put_mark(s, p->top + row, p->left,
                     high - (high - low) * row / (p->rows - 3), largest,
                     digits);
    }
    for (int row = LABEL - 1; row < p->columns; row++)
        put_cell(s, bottom - 1, p->left + row, '-');
    plait_screen_put(s, bottom, p->left + LABEL, "%s, step %.0f", p->title,
                     x[0]);
    plait_screen_put(s, bottom, p->left + p->columns - 12, "%12.0f", x[n - 1]);
}

/* The rows that one column's values span. */
struct span {
    int low, high;
};

static void put_spans(struct plait_screen *s, const struct plait_plot *p,
                      const struct span *span)
{
    for (int i = 0; i < p->columns - LABEL; i++)
        for (int row = span[i].low; row <= span[i].high; row++)
            put_cell(s, p->top + row, p->left + LABEL + i, '*');
}

void plait_screen_plot(struct plait_screen *s, const struct plait_plot *p,
                       const double *x, const double *y, size_t n)
{
    int columns = p->columns - LABEL;
    struct span *span;
    double low, high;

    find_range(y, n, &low, &high);
    if (p->rows < 5 || columns < 2 || !(low < high))
        return;
    put_axes(s, p, low, high, x, n);
    span = malloc(columns * sizeof(*span));
    if (!span)
        return;
    for (int i = 0; i < columns; i++)
        span[i] = (struct span){p->rows, -1};
    for (size_t k = 0; k < n; k++) {
        double end = x[n - 1] > x[0] ? x[n - 1] : x[0] + 1;
        int at, row;

        if (!isfinite(y[k]))
            continue;
        at = in_range(x[k], x[0], end, columns);
        row = p->rows - 3 - in_range(y[k], low, high, p->rows - 2);
        span[at].low = row < span[at].low ? row : span[at].low;
        span[at].high = row > span[at].high ? row : span[at].high;
    }
    put_spans(s, p, span);
    free(span);
}

void plait_screen_print(const struct plait_screen *s, const char *end,
                        FILE *out)
{
    int used;

    for (int row = 0; row < s->height; row++) {
        const char *line = s->cells + (size_t)row * s->width;

        for (used = s->width; used > 0 && line[used - 1] == ' ';)
            used--;
        fwrite(line, 1, used, out);
        if (row + 1 < s->height)
            fputs(end, out);
    }
}

void plait_screen_destroy(struct plait_screen *s)
{
    if (!s)
        return;
    free(s->cells);
    free(s);
}
