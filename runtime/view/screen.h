/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_SCREEN_H
#define PLAIT_RUNTIME_VIEW_SCREEN_H

#include <stddef.h>
#include <stdio.h>

/* A picture in ASCII characters. What does not fit is cut off. */
struct plait_screen {
    int width, height;
    char *cells; /* [height * width], spaces at first */
};

struct plait_screen *plait_screen_create(int width, int height);
void plait_screen_put(struct plait_screen *s, int row, int column,
                      const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Where a plot goes, and what it is called. */
struct plait_plot {
    int top, left, rows, columns;
    const char *title;
};

/* Plot y over x, both [n], with an axis of numbers on the left and one of steps
 * below. Where several values fall into one column, its smallest and largest
 * are joined. NaN is left out. */
void plait_screen_plot(struct plait_screen *s, const struct plait_plot *plot,
                       const double *x, const double *y, size_t n);

/* Prints all rows, with `end` after each but the last. */
void plait_screen_print(const struct plait_screen *s, const char *end,
                        FILE *out);
void plait_screen_destroy(struct plait_screen *s);

#endif
