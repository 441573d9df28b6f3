/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_TEMP_PATH_H
#define PLAIT_TESTS_UNIT_TEMP_PATH_H

#include <stdio.h>
#include <stdlib.h>

enum { TEMP_PATH = 128 };

/* A pattern for mkstemp() and mkdtemp() in `path`, which is returned. It is in
 * TMPDIR: there build-aux/time-limit finds what a test leaves behind. */
static inline char *temp_path(char path[TEMP_PATH], const char *name)
{
    const char *base = getenv("TMPDIR");

    snprintf(path, TEMP_PATH, "%s/plait-%s.XXXXXX", base ? base : "/tmp", name);
    return path;
}

#endif
