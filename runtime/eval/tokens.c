/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/eval/tokens.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/comm/consensus.h"
#include "runtime/data/data.h"

#define TOKENS_MOST 500000000 /* all are sent in one message */
#define CHUNK 1024

/* -- tokens ---------------------------------------------------------------- */

/* Copy tokens first .. first + n - 1, where first is a multiple of n. The
 * target of each one says whether the token after it is to be predicted. */
static int copy_tokens(const struct plait_dataset *ds, int vocab, int64_t first,
                       int n, int32_t *to, struct plait_error *err)
{
    const struct plait_sequence_form form = {n, vocab, -1};
    int32_t input[CHUNK], target[CHUNK];

    if (plait_dataset_read(ds, &form, first / n, input, target, err) < 0)
        return -1;
    to += first;
    for (int i = 0; i < n; i++) {
        to[i] = (to[i] & PLAIT_EVAL_MASKED) | input[i];
        to[i + 1] = target[i] < 0 ? PLAIT_EVAL_MASKED : target[i];
    }
    return 0;
}

static int read_dataset(const struct plait_dataset *ds, int vocab,
                        struct plait_eval_tokens *t, struct plait_error *err)
{
    int64_t i = 0, last = t->n - 1;

    t->tokens = calloc(t->n, sizeof(*t->tokens));
    if (!t->tokens)
        return plait_errorf(err, "out of memory");
    for (; i + CHUNK <= last; i += CHUNK)
        if (copy_tokens(ds, vocab, i, CHUNK, t->tokens, err) < 0)
            return -1;
    for (; i < last; i++)
        if (copy_tokens(ds, vocab, i, 1, t->tokens, err) < 0)
            return -1;
    return 0;
}

static int check_count(const struct plait_eval_tokens *t, const char *path,
                       struct plait_error *err)
{
    if (t->n < 2)
        return plait_errorf(err,
                            "%s: fewer than two tokens: nothing to "
                            "predict",
                            path);
    if (t->n > TOKENS_MOST)
        return plait_errorf(err,
                            "%s: %lld tokens; at most %d can be evaluated at "
                            "once",
                            path, (long long)t->n, TOKENS_MOST);
    return 0;
}

/* The set val of a folder, or train where there is no val. */
static char *find_set(const char *path)
{
    char *file = plait_dataset_find(path, "val");
    struct stat st;

    if (!file || stat(file, &st) == 0)
        return file;
    free(file);
    return plait_dataset_find(path, "train");
}

static int read_shards(struct plait_eval_tokens *t, const char *path,
                       const struct plait_tokenizer_source *source,
                       struct plait_error *err)
{
    char *file = find_set(path);
    struct plait_dataset *ds =
        file ? plait_dataset_create(file, PLAIT_DATA_AUTO, err) : NULL;
    int rc = -1;

    if (!file)
        plait_errorf(err, "out of memory");
    if (ds && plait_dataset_images(ds) > 0) {
        plait_errorf(err, "%s: it has images and not text", file);
    } else if (ds) {
        t->n = plait_dataset_tokens(ds);
        rc = check_count(t, file, err);
        if (rc == 0)
            rc = read_dataset(ds, source->vocab, t, err);
    }
    plait_dataset_destroy(ds);
    free(file);
    return rc;
}

/* -- text ------------------------------------------------------------------ */

static int read_file(const char *path, char **text, size_t *size,
                     struct plait_error *err)
{
    FILE *in = fopen(path, "re");
    size_t room = 1 << 16, n;
    char *more;

    *size = 0;
    *text = malloc(room);
    while (in && *text && (n = fread(*text + *size, 1, room - *size, in)) > 0) {
        *size += n;
        if (*size < room)
            continue;
        more = realloc(*text, room *= 2);
        if (!more)
            free(*text);
        *text = more;
    }
    if (!in || ferror(in))
        plait_errorf(err, "%s: %s", path, strerror(errno));
    else if (!*text)
        plait_errorf(err, "out of memory");
    if (in && !ferror(in) && *text) {
        fclose(in);
        return 0;
    }
    if (in)
        fclose(in);
    free(*text);
    return -1;
}

/* The bytes of the first token do not count: it is not predicted. */
static int count_bytes(struct plait_eval_tokens *t,
                       const struct plait_tokenizer *tokenizer, size_t size,
                       struct plait_error *err)
{
    size_t first;
    char *text;

    if (plait_tokenizer_decode(tokenizer, t->tokens, 1, &text, &first, err) < 0)
        return -1;
    free(text);
    t->bytes = size > first ? size - first : 0;
    return 0;
}

static int read_text(struct plait_eval_tokens *t, const char *path,
                     const struct plait_tokenizer_source *source,
                     struct plait_error *err)
{
    struct plait_tokenizer *tokenizer = plait_tokenizer_find(source, err);
    size_t size, n = 0;
    char *text = NULL;
    int rc = -1;

    if (!tokenizer && !err->text[0])
        return plait_errorf(err,
                            "%s has no tokenizer, and model.vocab %d is not "
                            "that of bytes (%d); give one with --tokenizer",
                            source->dir, source->vocab, PLAIT_BYTE_VOCAB);
    if (tokenizer && read_file(path, &text, &size, err) == 0) {
        rc = plait_tokenizer_encode(tokenizer, text, size, &t->tokens, &n, err);
        t->n = n;
        if (rc == 0)
            rc = check_count(t, path, err);
        if (rc == 0)
            rc = count_bytes(t, tokenizer, size, err);
        free(text);
    }
    plait_tokenizer_destroy(tokenizer);
    return rc;
}

/* -- both ------------------------------------------------------------------ */

static bool holds_tokens(const char *path)
{
    const char *dot = strrchr(path, '.');
    struct stat st;

    return (dot && !strcmp(dot, ".bin")) ||
           (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

int plait_eval_tokens_read(struct plait_eval_tokens *t,
                           struct plait_comm *world, const char *path,
                           const struct plait_tokenizer_source *source,
                           struct plait_error *err)
{
    size_t size = 0;
    char *data;
    int rc = 0;

    memset(t, 0, sizeof(*t));
    if (plait_comm_rank(world) == 0)
        rc = holds_tokens(path) ? read_shards(t, path, source, err)
                                : read_text(t, path, source, err);
    if (rc < 0)
        plait_eval_tokens_free(t);
    data = (char *)t->tokens;
    size = t->n * sizeof(*t->tokens);
    t->tokens = NULL;
    if (plait_broadcast_text(world, rc, &data, &size, err) < 0)
        return -1;
    t->tokens = (int32_t *)(void *)data;
    t->n = size / sizeof(*t->tokens);
    for (int64_t i = 1; i < t->n; i++)
        t->predicted += t->tokens[i] >= 0;
    if (plait_comm_host_broadcast(world, &t->bytes, sizeof(t->bytes), 0) == 0)
        return 0;
    plait_errorf(err, "%s", plait_comm_error(world));
    plait_eval_tokens_free(t);
    return -1;
}

void plait_eval_tokens_free(struct plait_eval_tokens *t)
{
    free(t->tokens);
    memset(t, 0, sizeof(*t));
}
