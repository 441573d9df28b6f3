/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tap.h"

/* Runs a fuzz target over its corpus in `make check`, with any compiler: every
 * file as it is, truncated, and with single bytes changed. The changes are
 * always the same, so that a failure can be repeated. The program run_NAME
 * takes tests/fuzz/corpus/NAME, or the files given as arguments. */

#define CUTS 64
#define CHANGES 256

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Tries a copy of exactly this size, so that a sanitizer sees a read past its
 * end. */
static void try(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    if (!copy)
        abort();
    if (size)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void try_variants(uint8_t *data, size_t size)
{
    static const uint8_t bytes[] = {0, '\n', '"', '<', '-', '9', 'z', 0xff};
    uint32_t state = (uint32_t)size;
    size_t i, at;
    uint8_t old;

    for (i = 0; i < CUTS && size > 0; i++)
        try(data, next_random(&state) % size);
    for (i = 0; i < CHANGES && size > 0; i++) {
        at = next_random(&state) % size;
        old = data[at];
        data[at] = bytes[next_random(&state) % sizeof(bytes)];
        try(data, size);
        data[at] = old;
    }
}

static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(1 << 20);
    size_t size;

    if (!file || !data) {
        ok(0, "%s cannot be read", path);
    } else {
        size = fread(data, 1, 1 << 20, file);
        try(data, size);
        try_variants(data, size);
        ok(1, "%s: %zu bytes", path, size);
    }
    free(data);
    if (file)
        fclose(file);
}

static int run_corpus(const char *self)
{
    const char *top = getenv("top_srcdir"), *name = strstr(self, "run_");
    struct dirent **entries;
    char path[4096];
    int n, i;

    snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/%s", top ? top : ".",
             name ? name + strlen("run_") : self);
    n = scandir(path, &entries, NULL, alphasort);
    if (n < 0) {
        ok(0, "no corpus in %s", path);
        return -1;
    }
    for (i = 0; i < n; i++) {
        char file[8192];

        snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            run_file(file);
        free(entries[i]);
    }
    free(entries);
    return 0;
}

int main(int argc, char **argv)
{
    int i;

    if (argc < 2)
        run_corpus(argv[0]);
    for (i = 1; i < argc; i++)
        run_file(argv[i]);
    return done_testing();
}
