/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_SVG_H
#define PLAIT_TOPOLOGY_CLI_SVG_H

#include <stdio.h>

/* Shared by all drawings. */

/* Print the head of a drawing of width x height pixels and its background.
 * `light` are the drawing's own styles, `dark` those that differ where the
 * viewer prefers dark. All have the class "weak" for secondary text. */
void svg_print_head(FILE *out, int width, int height, const char *light,
                    const char *dark);

/* Text for an XML element: <, > and & as entities, control characters left
 * out. */
void svg_print_escaped(FILE *out, const char *text);

/* The first `most` letters, or fewer and an ellipsis where the text has more;
 * UTF-8 stays whole. */
void svg_shorten(const char *text, size_t most, char *out, size_t size);

/* A <text> element at (x, y) in pixels, of 255 bytes at most. */
void svg_print_label(FILE *out, double x, double y, const char *class,
                     const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Print the tooltip of the element that this is inside of, 255 bytes at
 * most. */
void svg_print_title(FILE *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
