/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <jansson.h>

#include "runtime/data/tokenizer/spm.h"
#include "runtime/data/tokenizer/tokenizer_private.h"

/* The kind of tokenizer that uses SentencePiece. */

static void spm_destroy(void *model)
{
    plait_spm_destroy(model);
}

static size_t spm_cut(const void *model, const char *text, size_t size)
{
    return plait_spm_cut(model, text, size);
}

static int spm_encode(const void *model, void *scratch,
                      const struct plait_passage *passage,
                      struct plait_tokens *out, struct plait_error *err)
{
    (void)scratch;
    return plait_spm_encode(model, passage->text, passage->size,
                            passage->continued, out, err);
}

static int spm_decode(const void *model, const int32_t *tokens, size_t ntokens,
                      struct plait_buffer *out, struct plait_error *err)
{
    return plait_spm_decode(model, tokens, ntokens, out, err);
}

int plait_tokenizer_has_added(const struct plait_tokenizer *t, const char *path,
                              struct plait_error *err)
{
    json_error_t wrong;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &wrong), *added;
    const char *token;
    int rc = 0;
    size_t i;

    errno = EINVAL;
    if (!root)
        return plait_errorf(err, "%s: not JSON: line %d: %.120s", path,
                            wrong.line, wrong.text);
    json_array_foreach(json_object_get(root, "added_tokens"), i, added)
    {
        token = json_string_value(json_object_get(added, "content"));
        if (token &&
            plait_spm_has(t->model,
                          json_integer_value(json_object_get(added, "id")),
                          token))
            continue;
        rc = plait_errorf(err,
                          "%s is read in place of %s and lacks its token "
                          "'%.40s'; use --tokenizer spm:FILE to accept that",
                          t->path, path, token ? token : "");
        break;
    }
    json_decref(root);
    return rc;
}

static const struct plait_tokenizer_ops spm_ops = {
    .name = "spm",
    .file = "tokenizer.model",
    .destroy = spm_destroy,
    .cut = spm_cut,
    .encode = spm_encode,
    .decode = spm_decode,
};

int plait_tokenizer_open_spm(struct plait_tokenizer *t, const char *path,
                             struct plait_error *err)
{
    struct plait_spm *spm = plait_spm_create(path, err);

    if (!spm)
        return -1;
    t->ops = &spm_ops;
    t->model = spm;
    t->vocab = plait_spm_vocab(spm);
    t->end = t->usual_end = plait_spm_end(spm);
    return 0;
}
