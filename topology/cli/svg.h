/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_SVG_H
#define PLAIT_TOPOLOGY_CLI_SVG_H

#include <stdio.h>

/* What all drawings write alike. */

/* Text for an XML element: <, > and & as entities, control characters left
 * out. */
void svg_print_escaped(FILE *out, const char *text);

/* A <text> element at (x, y) in pixels, of 255 bytes at most. */
void svg_print_label(FILE *out, double x, double y, const char *class,
                     const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

#endif
