/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/manifest_identity.h"

/* What the parser accepts must be safe to use: names of files stay in the
 * checkpoint's directory, counts are not negative, and texts end within their
 * arrays. */
static void check_manifest(const struct plait_manifest *m)
{
    if (m->nfiles < 0 || m->replicas < 0 || m->info.step < 0 ||
        m->info.tokens < 0 || m->settings.n < 0 ||
        !memchr(m->optimizer, '\0', sizeof(m->optimizer)) ||
        !memchr(m->sync, '\0', sizeof(m->sync)))
        __builtin_trap();
    for (int i = 0; i < m->nfiles; i++)
        if (!memchr(m->files[i].name, '\0', sizeof(m->files[i].name)) ||
            !m->files[i].name[0] || strchr(m->files[i].name, '/'))
            __builtin_trap();
}

static void parse(const char *text, size_t size)
{
    struct plait_manifest *m = malloc(sizeof(*m));
    struct plait_error err;

    if (m && plait_manifest_parse("fuzz", text, size, m, &err) == 0) {
        check_manifest(m);
        free(m->files);
    }
    free(m);
}

/* A manifest.json: the input as it is, and with a correct checksum. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    parse(text, size);
    plait_manifest_seal(text, size);
    parse(text, size);
    free(text);
    return 0;
}
