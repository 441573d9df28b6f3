/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/prep_files.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/files.h"

int plait_prep_make_dir(const char *dir, struct plait_error *err)
{
    if (plait_files_make_dir(dir) == 0)
        return 0;
    return plait_errorf(err, "%s: cannot make the directory: %s", dir,
                        strerror(errno));
}

int plait_prep_sync(const char *dir, struct plait_error *err)
{
    if (plait_files_sync(dir) == 0)
        return 0;
    return plait_errorf(err, "%s: cannot write: %s", dir, strerror(errno));
}

static const char *const set_names[PLAIT_TEXT_SETS] = {"train", "val"};

/* -- whole files ----------------------------------------------------------- */

static int write_all(const char *path, const char *text, size_t size)
{
    FILE *file = fopen(path, "we");
    bool good;

    if (!file)
        return -1;
    good = fwrite(text, 1, size, file) == size && fflush(file) == 0 &&
           fsync(fileno(file)) == 0;
    if (fclose(file) != 0 || !good)
        return -1;
    return 0;
}

/* Write under another name first, so that the file is complete or not there at
 * all. */
static int replace_file(const char *dir, const char *name, const char *text,
                        size_t size, struct plait_error *err)
{
    char *path = NULL, *temporary = NULL;
    int rc = -1;

    if (asprintf(&path, "%s/%s", dir, name) < 0 ||
        asprintf(&temporary, "%s/%s.tmp", dir, name) < 0) {
        plait_errorf(err, "%s: out of memory", dir);
    } else if (write_all(temporary, text, size) < 0 ||
               rename(temporary, path) < 0) {
        plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
        unlink(temporary);
    } else {
        rc = 0;
    }
    free(path);
    free(temporary);
    return rc;
}

static int replace_json(const char *dir, const char *name, json_t *root,
                        struct plait_error *err)
{
    char *text =
        root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    int rc;

    json_decref(root);
    if (!text)
        return plait_errorf(err, "%s/%s: out of memory", dir, name);
    rc = replace_file(dir, name, text, strlen(text), err);
    free(text);
    return rc;
}

static json_t *load_json(const char *dir, const char *name)
{
    json_t *root;
    char *path;

    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return NULL;
    root = json_load_file(path, 0, NULL);
    free(path);
    return root;
}

/* -- the progress of a run ------------------------------------------------- */

int plait_prep_state_load(const char *dir, uint64_t key,
                          struct plait_prep_state *state)
{
    json_t *root = load_json(dir, "prep.state");
    json_int_t v[11] = {0};
    const char *text;
    char name[17];
    bool rc;

    snprintf(name, sizeof(name), "%016" PRIx64, key);
    rc = root && json_unpack(root, "{s:s, s:[IIII], s:[III], s:[III], s?I}",
                             "key", &text, "at", &v[0], &v[1], &v[2], &v[3],
                             "train", &v[4], &v[5], &v[6], "val", &v[7], &v[8],
                             &v[9], "left", &v[10]) == 0;
    rc = rc && !strcmp(text, name);
    for (int i = 0; i < 11 && rc; i++)
        rc = v[i] >= 0;
    if (rc) {
        state->at = (struct plait_text_position){v[0], v[1], v[2], v[3]};
        state->mark[0] = (struct plait_token_mark){v[4], v[5], v[6]};
        state->mark[1] = (struct plait_token_mark){v[7], v[8], v[9]};
        state->left = v[10];
    }
    json_decref(root);
    return rc;
}

static json_t *pack_mark(const struct plait_token_mark *m)
{
    return json_pack("[III]", (json_int_t)m->tokens, (json_int_t)m->documents,
                     (json_int_t)m->open);
}

int plait_prep_state_save(const char *dir, uint64_t key,
                          const struct plait_prep_state *state,
                          struct plait_error *err)
{
    const struct plait_text_position *at = &state->at;
    char name[17];

    snprintf(name, sizeof(name), "%016" PRIx64, key);
    return replace_json(
        dir, "prep.state",
        json_pack("{s:s, s:[IIII], s:o, s:o, s:I}", "key", name, "at",
                  (json_int_t)at->file, (json_int_t)at->at,
                  (json_int_t)at->lines, (json_int_t)at->documents, "train",
                  pack_mark(&state->mark[PLAIT_TEXT_TRAIN]), "val",
                  pack_mark(&state->mark[PLAIT_TEXT_VAL]), "left",
                  (json_int_t)state->left),
        err);
}

void plait_prep_state_remove(const char *dir)
{
    char *path;

    if (asprintf(&path, "%s/prep.state", dir) < 0)
        return;
    unlink(path);
    free(path);
}

/* -- the tokenizer --------------------------------------------------------- */

/* 1; 0: there is no such file; -1 with errno. */
static int read_all(const char *path, struct plait_buffer *text)
{
    FILE *file = fopen(path, "re");
    size_t n = 1;

    if (!file)
        return errno == ENOENT ? 0 : -1;
    while (n > 0 && plait_buffer_reserve(text, 1 << 16) == 0) {
        n = fread(text->data + text->size, 1, 1 << 16, file);
        text->size += n;
    }
    n = n > 0 || ferror(file);
    fclose(file);
    return n ? -1 : 1;
}

/* Copy `from` to DIR/NAME, unless the same is there already. ours: the file
 * that is there was written by plait-prep. Without `from` (it does not exist,
 * or is NULL) such a file is removed. */
static int copy_file(const char *dir, const char *name, const char *from,
                     bool ours, struct plait_error *err)
{
    struct plait_buffer new = {0}, old = {0};
    char *to;
    int rc;

    if (asprintf(&to, "%s/%s", dir, name) < 0)
        return plait_errorf(err, "%s: out of memory", dir);
    rc = from ? read_all(from, &new) : 0;
    if (rc == 0 && ours) {
        unlink(to);
    } else if (rc < 0 || (rc > 0 && read_all(to, &old) < 0)) {
        rc = plait_errorf(err, "%s: %s", rc < 0 ? from : to, strerror(errno));
    } else if (rc > 0 && (old.size != new.size ||
                          memcmp(old.data, new.data, new.size) != 0)) {
        errno = EEXIST;
        rc = old.size > 0 && !ours
                 ? plait_errorf(err,
                                "%s: this tokenizer differs from %s and was "
                                "not written by plait-prep; choose another "
                                "--out",
                                to, from)
                 : replace_file(dir, name, new.data, new.size, err);
    }
    free(new.data);
    free(old.data);
    free(to);
    return rc < 0 ? -1 : 0;
}

int plait_prep_copy_tokenizer(const char *dir, const struct plait_tokenizer *t,
                              struct plait_error *err)
{
    const char *from = plait_tokenizer_path(t), *slash;
    json_t *manifest = load_json(dir, "prep.json");
    bool ours = manifest != NULL;
    char *config;
    int rc;

    json_decref(manifest);
    if (!from)
        return copy_file(dir, "tokenizer_config.json", NULL, ours, err);
    if (copy_file(dir, plait_tokenizer_file(t), from, ours, err) < 0)
        return -1;
    slash = strrchr(from, '/');
    if (asprintf(&config, "%.*stokenizer_config.json",
                 slash ? (int)(slash - from + 1) : 0, from) < 0)
        return plait_errorf(err, "%s: out of memory", dir);
    rc = copy_file(dir, "tokenizer_config.json", config, ours, err);
    free(config);
    return rc;
}

/* -- the manifest ---------------------------------------------------------- */

int plait_prep_write_manifest(
    const char *dir, enum plait_data_format format,
    const struct plait_tokenizer *t,
    const struct plait_token_mark mark[PLAIT_TEXT_SETS],
    struct plait_error *err)
{
    static const char *const formats[] = {[PLAIT_DATA_PLAIT] = "plait",
                                          [PLAIT_DATA_LLMC] = "llmc",
                                          [PLAIT_DATA_MEGATRON] = "megatron"};
    json_t *root =
        json_pack("{s:i, s:s, s:s, s:s?, s:i, s:i}", "version", 1, "format",
                  formats[format], "tokenizer", plait_tokenizer_name(t),
                  "tokenizer_file", plait_tokenizer_file(t), "vocab",
                  plait_tokenizer_vocab(t), "end", (int)plait_tokenizer_end(t));

    for (int i = 0; root && i < PLAIT_TEXT_SETS; i++)
        json_object_set_new(root, set_names[i],
                            json_pack("{s:I, s:I}", "tokens",
                                      (json_int_t)mark[i].tokens, "documents",
                                      (json_int_t)mark[i].documents));
    return replace_json(dir, "prep.json", root, err);
}
