/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- bytes --------------------------------------------------------------- */

enum { BYTE_END = 256 };

static size_t byte_cut(const void *model, const char *text, size_t size)
{
    (void)model, (void)text;
    return size > 1 ? size - 1 : 0;
}

static int byte_encode(const void *model, void *scratch,
                       const struct plait_passage *passage,
                       struct plait_tokens *out, struct plait_error *err)
{
    (void)model, (void)scratch;
    if (plait_tokens_reserve(out, passage->size) < 0)
        return plait_errorf(err, "tokenizer: out of memory");
    for (size_t i = 0; i < passage->size; i++)
        out->id[out->count++] = (unsigned char)passage->text[i];
    return 0;
}

static int byte_decode(const void *model, const int32_t *tokens, size_t ntokens,
                       struct plait_buffer *out, struct plait_error *err)
{
    (void)model;
    if (plait_buffer_reserve(out, ntokens) < 0)
        return plait_errorf(err, "tokenizer: out of memory");
    for (size_t i = 0; i < ntokens; i++)
        if (tokens[i] >= 0 && tokens[i] < BYTE_END)
            out->data[out->size++] = (char)tokens[i];
    return 0;
}

static const struct plait_tokenizer_ops byte_ops = {
    .name = "byte",
    .cut = byte_cut,
    .encode = byte_encode,
    .decode = byte_decode,
};

/* -- any ----------------------------------------------------------------- */

typedef int opener(struct plait_tokenizer *, const char *,
                   struct plait_error *);

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && !strcmp(text + n - m, end);
}

/* What opens a file by its name alone, or a folder by what is in it; NULL:
 * nothing does. */
static opener *open_by_name(const char *path)
{
    struct stat st;

    if (ends_with(path, ".json"))
        return plait_tokenizer_open_bpe;
    if (ends_with(path, ".model"))
        return plait_tokenizer_open_spm;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode)
               ? plait_tokenizer_open_bpe
               : NULL;
}

bool plait_tokenizer_is_spec(const char *spec)
{
    return !strcmp(spec, "byte") || !strncmp(spec, "spm:", 4) ||
           !strncmp(spec, "bpe:", 4) || open_by_name(spec);
}

static int open_spec(struct plait_tokenizer *t, const char *spec,
                     struct plait_error *err)
{
    opener *open;
    bool named = !strncmp(spec, "spm:", 4) || !strncmp(spec, "bpe:", 4);
    const char *path = named ? spec + 4 : spec;

    if (!strcmp(spec, "byte")) {
        t->ops = &byte_ops;
        t->vocab = PLAIT_BYTE_VOCAB;
        t->end = t->usual_end = BYTE_END;
        return 0;
    }
    open = named ? *spec == 's' ? plait_tokenizer_open_spm
                                : plait_tokenizer_open_bpe
                 : open_by_name(spec);
    if (!open || !*path) {
        errno = EINVAL;
        return plait_errorf(err,
                            "the tokenizer must be byte, a tokenizer.json or "
                            "its folder (also bpe:FILE), or a tokenizer.model "
                            "(also spm:FILE), not '%s'",
                            spec);
    }
    t->path = strdup(path);
    if (!t->path)
        return plait_errorf(err, "tokenizer %s: out of memory", spec);
    return open(t, t->path, err);
}

struct plait_tokenizer *plait_tokenizer_create(const char *spec,
                                               struct plait_error *err)
{
    struct plait_tokenizer *t = calloc(1, sizeof(*t));

    if (!t) {
        plait_errorf(err, "tokenizer %s: out of memory", spec);
        return NULL;
    }
    if (open_spec(t, spec, err) == 0)
        return t;
    plait_tokenizer_destroy(t);
    return NULL;
}

char *plait_tokenizer_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct stat st;
    char *folder;
    int n;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        n = asprintf(&folder, "%s/", path);
    else
        n = asprintf(&folder, "%.*s", slash ? (int)(slash - path + 1) : 2,
                     slash ? path : "./");
    return n < 0 ? NULL : folder;
}

/* The tokens have the end that they were prepared with, whichever would be
 * chosen now. */
static void keep_end(struct plait_tokenizer *t, const json_t *end)
{
    json_int_t id = json_is_integer(end) ? json_integer_value(end) : -1;

    if (id >= 0 && id < t->vocab)
        t->end = (int32_t)id;
}

struct plait_tokenizer *plait_tokenizer_beside(const char *path,
                                               struct plait_error *err)
{
    char *folder = plait_tokenizer_folder(path), *manifest = NULL, *spec = NULL;
    const char *name = NULL, *file = NULL;
    struct plait_tokenizer *t = NULL;
    json_t *root = NULL;

    if (folder && asprintf(&manifest, "%sprep.json", folder) >= 0)
        root = json_load_file(manifest, 0, NULL);
    name = json_string_value(json_object_get(root, "tokenizer"));
    file = json_string_value(json_object_get(root, "tokenizer_file"));
    errno = ENOENT;
    if (name && !file)
        t = plait_tokenizer_create(name, err);
    else if (name && asprintf(&spec, "%s:%s%s", name, folder, file) >= 0)
        t = plait_tokenizer_create(spec, err);
    if (t)
        keep_end(t, json_object_get(root, "end"));
    json_decref(root);
    free(folder);
    free(manifest);
    free(spec);
    return t;
}

void plait_tokenizer_destroy(struct plait_tokenizer *t)
{
    int saved = errno;

    if (!t)
        return;
    if (t->model)
        t->ops->destroy(t->model);
    free(t->path);
    free(t);
    errno = saved;
}

const char *plait_tokenizer_name(const struct plait_tokenizer *t)
{
    return t->ops->name;
}

const char *plait_tokenizer_path(const struct plait_tokenizer *t)
{
    return t->path;
}

const char *plait_tokenizer_file(const struct plait_tokenizer *t)
{
    return t->ops->file;
}

int plait_tokenizer_vocab(const struct plait_tokenizer *t)
{
    return t->vocab;
}

int32_t plait_tokenizer_end(const struct plait_tokenizer *t)
{
    return t->end;
}

size_t plait_tokenizer_cut(const struct plait_tokenizer *t, const char *text,
                           size_t size)
{
    return t->ops->cut(t->model, text, size);
}

/* -- encoding and decoding ------------------------------------------------ */

struct plait_encoder {
    const struct plait_tokenizer *tokenizer;
    void *scratch;
};

struct plait_encoder *plait_encoder_create(const struct plait_tokenizer *t)
{
    struct plait_encoder *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->tokenizer = t;
    if (!t->ops->scratch_create || (e->scratch = t->ops->scratch_create()))
        return e;
    free(e);
    return NULL;
}

void plait_encoder_destroy(struct plait_encoder *e)
{
    int saved = errno;

    if (!e)
        return;
    if (e->scratch)
        e->tokenizer->ops->scratch_destroy(e->scratch);
    free(e);
    errno = saved;
}

int plait_encoder_add(struct plait_encoder *e, const char *text, size_t size,
                      bool continued, struct plait_tokens *out,
                      struct plait_error *err)
{
    const struct plait_passage passage = {text, size, continued};

    return e->tokenizer->ops->encode(e->tokenizer->model, e->scratch, &passage,
                                     out, err);
}

int plait_tokenizer_encode(const struct plait_tokenizer *t, const char *text,
                           size_t size, int32_t **tokens, size_t *ntokens,
                           struct plait_error *err)
{
    struct plait_encoder *e = plait_encoder_create(t);
    struct plait_tokens out = {0};

    if (!e || plait_tokens_reserve(&out, 1) < 0) {
        plait_encoder_destroy(e);
        return plait_errorf(err, "tokenizer: out of memory");
    }
    if (plait_encoder_add(e, text, size, false, &out, err) < 0) {
        plait_encoder_destroy(e);
        free(out.id);
        return -1;
    }
    plait_encoder_destroy(e);
    *tokens = out.id;
    *ntokens = out.count;
    return 0;
}

int plait_tokenizer_decode(const struct plait_tokenizer *t,
                           const int32_t *tokens, size_t ntokens, char **text,
                           size_t *size, struct plait_error *err)
{
    struct plait_buffer out = {0};

    if (t->ops->decode(t->model, tokens, ntokens, &out, err) < 0) {
        free(out.data);
        return -1;
    }
    if (plait_buffer_reserve(&out, 1) < 0) {
        free(out.data);
        return plait_errorf(err, "tokenizer: out of memory");
    }
    out.data[out.size] = '\0';
    *text = out.data;
    *size = out.size;
    return 0;
}

int plait_tokenizer_set_end(struct plait_tokenizer *t, const char *token,
                            struct plait_error *err)
{
    int32_t *tokens = NULL;
    size_t n = 0;

    if (plait_tokenizer_encode(t, token, strlen(token), &tokens, &n, err) < 0)
        return -1;
    if (n == 1)
        t->end = tokens[0];
    free(tokens);
    if (n == 1)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "--end-token '%.60s' is not one token of the "
                        "tokenizer, but %zu",
                        token, n);
}

int32_t plait_tokenizer_usual_end(const struct plait_tokenizer *t)
{
    return t->usual_end;
}

const char *plait_tokenizer_end_name(const struct plait_tokenizer *t)
{
    return t->ops->name_of ? t->ops->name_of(t->model, t->end) : NULL;
}

/* The file `name` in the folder of `path`; NULL: there is none. */
static json_t *load_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    json_t *root;
    char *file;

    if (asprintf(&file, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path,
                 name) < 0)
        return NULL;
    /* model_max_length is often a number that no integer holds. */
    root = json_load_file(file, JSON_DECODE_INT_AS_REAL, NULL);
    free(file);
    return root;
}

int32_t plait_tokenizer_eos_id(const char *path)
{
    static const char *const files[] = {"generation_config.json",
                                        "config.json"};
    int32_t id = -1;

    for (int i = 0; i < 2 && id < 0; i++) {
        json_t *root = load_beside(path, files[i]);
        json_t *eos = json_object_get(root, "eos_token_id");

        if (json_is_array(eos))
            eos = json_array_get(eos, 0);
        if (json_is_number(eos) && json_number_value(eos) >= 0 &&
            json_number_value(eos) <= INT32_MAX)
            id = (int32_t)json_number_value(eos);
        json_decref(root);
    }
    return id;
}

char *plait_tokenizer_eos(const char *path)
{
    json_t *root = load_beside(path, "tokenizer_config.json");
    json_t *eos = json_object_get(root, "eos_token");
    char *name = NULL;

    if (json_is_object(eos))
        eos = json_object_get(eos, "content");
    if (json_is_string(eos))
        name = strdup(json_string_value(eos));
    json_decref(root);
    return name;
}
