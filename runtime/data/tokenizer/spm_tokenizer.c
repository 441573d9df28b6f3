/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "runtime/data/tokenizer/spm.h"
#include "runtime/data/tokenizer/spm_bpe.h"
#include "runtime/data/tokenizer/spm_proto.h"
#include "runtime/data/tokenizer/tokenizer_private.h"
#include "runtime/data/tokenizer/unicode.h"

/* The kind of tokenizer that uses SentencePiece. */

struct model {
    struct plait_spm *spm;
    struct plait_spm_bpe *bpe; /* NULL: the library encodes */
};

static void spm_destroy(void *model)
{
    struct model *m = model;

    plait_spm_destroy(m->spm);
    plait_spm_bpe_destroy(m->bpe);
    free(m);
}

static size_t spm_cut(const void *model, const char *text, size_t size)
{
    const struct model *m = model;

    return plait_spm_cut(m->spm, text, size);
}

static void *scratch_create(void)
{
    return calloc(1, sizeof(struct plait_spm_space));
}

static void scratch_destroy(void *scratch)
{
    plait_spm_space_clear(scratch);
    free(scratch);
}

/* What is not UTF-8 is for the library, which has its own way with it. */
static int spm_encode(const void *model, void *scratch,
                      const struct plait_passage *passage,
                      struct plait_tokens *out, struct plait_error *err)
{
    const struct model *m = model;

    if (!m->bpe ||
        plait_utf8_valid(passage->text, passage->size) < passage->size)
        return plait_spm_encode(m->spm, passage->text, passage->size,
                                passage->continued, out, err);
    if (plait_spm_bpe_encode(m->bpe, scratch, passage, out) < 0)
        return plait_errorf(err, "tokenizer: out of memory");
    return 0;
}

static int spm_decode(const void *model, const int32_t *tokens, size_t ntokens,
                      struct plait_buffer *out, struct plait_error *err)
{
    const struct model *m = model;

    return plait_spm_decode(m->spm, tokens, ntokens, out, err);
}

int plait_tokenizer_has_added(const struct plait_tokenizer *t, const char *path,
                              struct plait_error *err)
{
    json_error_t wrong;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &wrong), *added;
    const struct model *m = t->model;
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
            plait_spm_has(m->spm,
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
    .scratch_create = scratch_create,
    .scratch_destroy = scratch_destroy,
    .encode = spm_encode,
    .decode = spm_decode,
};

/* plait's own encoding of a model; a model that it cannot read is for the
 * library. -1 with ENOMEM. */
static int open_bpe(struct model *m)
{
    struct plait_buffer bytes = {0};
    struct plait_spm_proto proto = {0};
    int rc = plait_spm_bytes(m->spm, &bytes);

    if (rc == 0)
        rc = plait_spm_proto_read(bytes.data, bytes.size, &proto);
    if (rc == 0)
        rc = plait_spm_bpe_create(&proto, &m->bpe);
    else if (errno == EINVAL)
        rc = 0;
    plait_spm_proto_clear(&proto);
    free(bytes.data);
    return rc;
}

int plait_tokenizer_open_spm(struct plait_tokenizer *t, const char *path,
                             struct plait_error *err)
{
    struct plait_spm *spm = plait_spm_create(path, err);
    struct model *m;

    if (!spm)
        return -1;
    m = calloc(1, sizeof(*m));
    if (!m) {
        plait_spm_destroy(spm);
        return plait_errorf(err, "spm:%s: out of memory", path);
    }
    m->spm = spm;
    t->ops = &spm_ops;
    t->model = m;
    t->vocab = plait_spm_vocab(spm);
    t->end = t->usual_end = plait_spm_end(spm);
    return open_bpe(m) < 0 ? plait_errorf(err, "spm:%s: out of memory", path)
                           : 0;
}
