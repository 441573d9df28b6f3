/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/checkpoint/model_extras.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/file_out.h"
#include "topology/base/files.h"

/* The first two are tokenizers. */
static const char *const names[] = {"tokenizer.json",
                                    "tokenizer.model",
                                    "tokenizer_config.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "added_tokens.json",
                                    "special_tokens_map.json",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "generation_config.json"};
enum { TOKENIZERS = 2, OF_PREP = 3, NAMES = sizeof(names) / sizeof(names[0]) };

/* -- one file ------------------------------------------------------------- */

static int copy_bytes(int from, struct plait_file_out *out)
{
    char buf[65536];
    ssize_t n;

    while ((n = read(from, buf, sizeof(buf))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || plait_file_out_write(out, buf, (size_t)n) < 0)
            return -1;
    }
    return 0;
}

static int copy_open(int fd, const char *to, const char *name)
{
    char path[4096 + 256], made[4096 + 256];
    struct plait_file_out out;
    int rc;

    snprintf(path, sizeof(path), "%s/%s", to, name);
    snprintf(made, sizeof(made), "%s/.%s.partial", to, name);
    unlink(made); /* left by a run that was killed */
    if (plait_file_out_open(&out, made) < 0)
        return -1;
    rc = copy_bytes(fd, &out);
    if (plait_file_out_close(&out, rc == 0) < 0 ||
        (rc == 0 && rename(made, path) < 0))
        rc = -1;
    if (rc < 0)
        unlink(made);
    return rc;
}

int plait_copy_file(const char *from, const char *to, const char *name,
                    struct plait_error *err)
{
    char path[4096 + 64];
    int fd, rc;

    snprintf(path, sizeof(path), "%s/%s", from, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 1;
    if (fd < 0)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    rc = copy_open(fd, to, name);
    if (rc < 0)
        plait_errorf(err, "%s: cannot copy it to %s: %s", path, to,
                     strerror(errno));
    close(fd);
    return rc;
}

/* -- all of them ---------------------------------------------------------- */

static int copy_names(const char *from, const char *to, int first, int end,
                      struct plait_error *err)
{
    for (int i = first; i < end; i++)
        if (plait_copy_file(from, to, names[i], err) < 0)
            return -1;
    return 0;
}

static bool has_tokenizer(const char *dir)
{
    return plait_files_has(dir, names[0]) || plait_files_has(dir, names[1]);
}

/* The files of a checkpoint are in the directory above it. */
static void find_extras(const char *dir, char found[4096])
{
    bool above = plait_files_has(dir, "manifest.json") && !has_tokenizer(dir);

    snprintf(found, 4096, "%s%s", dir, above ? "/.." : "");
}

int plait_model_extras_copy(const char *from, const char *to,
                            struct plait_error *err)
{
    char found[4096];

    find_extras(from, found);
    return copy_names(found, to, 0, NAMES, err);
}

static bool same_file(const char *a, const char *b, const char *name)
{
    char path[4096 + 64], x[4096], y[4096];
    FILE *one, *other;
    size_t n = 1, m = 1;
    bool same;

    snprintf(path, sizeof(path), "%s/%s", a, name);
    one = fopen(path, "re");
    snprintf(path, sizeof(path), "%s/%s", b, name);
    other = fopen(path, "re");
    same = one && other;
    while (same && (n > 0 || m > 0)) {
        n = fread(x, 1, sizeof(x), one);
        m = fread(y, 1, sizeof(y), other);
        same = n == m && memcmp(x, y, n) == 0;
    }
    if (one)
        fclose(one);
    if (other)
        fclose(other);
    return same;
}

/* Which of the tokenizers the folder was prepared with; -1: none. Another may
 * be left there by an earlier preparation. */
static int find_prepared(const char *data)
{
    char path[4096 + 64];
    const char *file;
    json_t *root;
    int found = -1;

    snprintf(path, sizeof(path), "%s/prep.json", data);
    root = json_load_file(path, 0, NULL);
    file = json_string_value(json_object_get(root, "tokenizer_file"));
    for (int i = 0; file && i < TOKENIZERS; i++)
        if (strcmp(file, names[i]) == 0 && plait_files_has(data, file))
            found = i;
    json_decref(root);
    return found;
}

/* Copy config.json for a tokenizer that is not the model's own: the ids of the
 * model's special tokens mean something else there. */
static int copy_config(const char *from, const char *to, int32_t end,
                       struct plait_error *err)
{
    char path[4096 + 64];
    json_t *root;
    int rc;

    snprintf(path, sizeof(path), "%s/config.json", from);
    if (!plait_files_has(from, "config.json"))
        return 0;
    root = json_load_file(path, 0, NULL);
    json_object_set_new(root, "bos_token_id", json_null());
    json_object_set_new(root, "pad_token_id", json_null());
    json_object_set_new(root, "eos_token_id",
                        end < 0 ? json_null() : json_integer(end));
    snprintf(path, sizeof(path), "%s/config.json", to);
    rc = root ? json_dump_file(root, path, JSON_INDENT(2)) : -1;
    json_decref(root);
    return rc < 0 ? plait_errorf(err, "%s: cannot write", path) : 0;
}

static int copy_of_model(const char *from, const char *to,
                         struct plait_error *err)
{
    if (copy_names(from, to, 0, NAMES, err) < 0)
        return -1;
    return plait_copy_file(from, to, "config.json", err) < 0 ? -1 : 0;
}

int plait_model_extras_gather(const char *data, const char *init, int32_t end,
                              const char *to, struct plait_error *err)
{
    int own = data ? find_prepared(data) : -1, rc = 0;
    char found[4096];

    if (init) {
        find_extras(init, found);
        rc = own >= 0 && !same_file(data, found, names[own])
                 ? copy_config(found, to, end, err)
                 : copy_of_model(found, to, err);
    }
    if (rc < 0)
        return -1;
    if (own < 0)
        return 0;
    if (copy_names(data, to, own, own + 1, err) < 0)
        return -1;
    return copy_names(data, to, TOKENIZERS, OF_PREP, err);
}
