/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_PREFLIGHT_FILES_H
#define PLAIT_TESTS_UNIT_PREFLIGHT_FILES_H

#include <stdio.h>
#include <sys/stat.h>

/* The files of a test of preflights: programs that it plays, and what these
 * write. */
static char folder[64];

/* A program below the folder, whose path is in `path`. */
static inline void put_program(const char *name, const char *body,
                               char path[128])
{
    FILE *file;

    snprintf(path, 128, "%s/%s", folder, name);
    file = fopen(path, "w");
    if (!file)
        return;
    fprintf(file, "#!/bin/sh\ncd %s\n%s\n", folder, body);
    fclose(file);
    chmod(path, 0755);
}

/* The text of a file below it, until the next call; "": there is none. */
static inline const char *read_file(const char *name)
{
    static char text[8192];
    char path[128];
    FILE *file;
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "r");
    if (file) {
        n = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[n] = '\0';
    return text;
}

#endif
