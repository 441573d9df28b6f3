/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_JSON_LINE_H
#define PLAIT_RUNTIME_DATA_PREP_JSON_LINE_H

#include <jansson.h>
#include <stddef.h>

#include "topology/base/error.h"

/* Parses a line as Python's json does, which writes most of them: also with
 * NaN, Infinity and -Infinity, and with numbers beyond a double, none of which
 * says anything about a text; all of these become 0. NULL, with the reason and
 * EINVAL or ENOMEM. */
json_t *plait_json_line_parse(const char *line, size_t size,
                              struct plait_error *err);

#endif
