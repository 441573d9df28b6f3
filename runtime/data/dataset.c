/* SPDX-License-Identifier: Apache-2.0 */
/* A dataset is all files that a pattern names, in their order, as one sequence
 * of samples. */
#include "config.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/data/dataset.h"
#include "runtime/data/images.h"
#include "topology/base/files.h"
#include "topology/base/hash.h"

void plait_dataset_destroy(struct plait_dataset *ds)
{
    int saved = errno;

    if (!ds)
        return;
    for (int i = 0; i < ds->nsegments; i++)
        plait_segment_close(&ds->segments[i]);
    free(ds->segments);
    free(ds->path);
    free(ds);
    errno = saved;
}

/* An index file that the pattern matched beside its data is not a second
 * dataset. */
static bool is_matched_index(const glob_t *found, size_t index)
{
    const char *path = found->gl_pathv[index];
    size_t n = strlen(path);

    if (n < 4 || strcmp(path + n - 4, ".idx") != 0)
        return false;
    for (size_t i = 0; i < found->gl_pathc; i++)
        if (strlen(found->gl_pathv[i]) == n &&
            !strncmp(found->gl_pathv[i], path, n - 4) &&
            !strcmp(found->gl_pathv[i] + n - 4, ".bin"))
            return true;
    return false;
}

/* Add a segment of images, and its labels where they are in a separate file. */
static int add_images(struct plait_dataset *ds, struct plait_segment *s,
                      struct plait_error *err)
{
    const struct plait_segment *first = &ds->segments[0];

    if (memcmp(s->images.shape, first->images.shape, sizeof(s->images.shape)))
        return plait_errorf(err,
                            "%s: images of %d x %d x %d, those of %s in the "
                            "same dataset have %d x %d x %d",
                            s->path, s->images.shape[0], s->images.shape[1],
                            s->images.shape[2], first->path,
                            first->images.shape[0], first->images.shape[1],
                            first->images.shape[2]);
    s->first = ds->images;
    ds->images += s->count;
    if (!s->images.beside)
        return 0;
    if (plait_images_open_labels(s + 1, s, err) < 0) {
        plait_segment_close(s + 1);
        return -1;
    }
    ds->nsegments++;
    return 0;
}

static int add_segment(struct plait_dataset *ds, const char *path,
                       enum plait_data_format format, struct plait_error *err)
{
    struct plait_segment *s = &ds->segments[ds->nsegments], *first;

    if (plait_segment_open(s, path, format, err) < 0)
        return -1;
    ds->nsegments++;
    s->first = ds->tokens;
    ds->tokens += s->count;
    first = &ds->segments[0];
    errno = EINVAL;
    if (s->vocab != first->vocab || strcmp(s->tokenizer, first->tokenizer))
        return plait_errorf(err,
                            "%s: vocabulary %d (%s) is not the %d (%s) of %s "
                            "in the same dataset",
                            s->path, s->vocab, s->tokenizer, first->vocab,
                            first->tokenizer, first->path);
    return s->images.shape[0] || first->images.shape[0] ? add_images(ds, s, err)
                                                        : 0;
}

static int open_all(struct plait_dataset *ds, const glob_t *found,
                    enum plait_data_format format, struct plait_error *err)
{
    plait_files_allow(2 * found->gl_pathc);
    ds->segments = calloc(2 * found->gl_pathc, sizeof(*ds->segments));
    if (!ds->segments)
        return plait_errorf(err, "%s: out of memory", ds->path);
    for (size_t i = 0; i < found->gl_pathc; i++)
        if (!is_matched_index(found, i) &&
            add_segment(ds, found->gl_pathv[i], format, err) < 0)
            return -1;
    errno = EINVAL;
    if (ds->segments[0].images.shape[0] && ds->images < 1)
        return plait_errorf(err, "%s: there are no images in it", ds->path);
    if (!ds->segments[0].images.shape[0] && ds->tokens < 2)
        return plait_errorf(err, "%s: %lld tokens are too few for a dataset",
                            ds->path, (long long)ds->tokens);
    return 0;
}

struct plait_dataset *plait_dataset_create(const char *path,
                                           enum plait_data_format format,
                                           struct plait_error *err)
{
    struct plait_dataset *ds = calloc(1, sizeof(*ds));
    glob_t found = {0};
    int rc;

    if (!ds || !(ds->path = strdup(path))) {
        plait_errorf(err, "%s: out of memory", path);
        goto error;
    }
    /* A name without a match stays itself: the error then comes from open(),
     * or it is the stem of a Megatron pair. */
    rc = glob(path, GLOB_NOMAGIC, NULL, &found);
    if (rc != 0) {
        errno = rc == GLOB_NOMATCH ? ENOENT : EIO;
        plait_errorf(err, "%s: %s", path,
                     rc == GLOB_NOMATCH ? "no file has a name like this"
                                        : "cannot list the files");
        goto error;
    }
    if (open_all(ds, &found, format, err) < 0)
        goto error;
    globfree(&found);
    return ds;
error:
    globfree(&found);
    plait_dataset_destroy(ds);
    return NULL;
}

char *plait_dataset_find(const char *path, const char *set)
{
    static const char *const endings[] = {".bin", "-images-idx3-ubyte",
                                          "-images-idx4-ubyte"};
    struct stat st;
    char *file;

    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return strdup(path);
    for (int i = 0; i < 3; i++) {
        /* Files of images are named as MNIST's. */
        if (asprintf(&file, "%s/%s%s", path,
                     i > 0 && !strcmp(set, "val") ? "t10k" : set,
                     endings[i]) < 0)
            return NULL;
        if (stat(file, &st) == 0)
            return file;
        free(file);
    }
    /* Then the error names the first file that was looked for. */
    return asprintf(&file, "%s/%s.bin", path, set) < 0 ? NULL : file;
}

int64_t plait_dataset_tokens(const struct plait_dataset *ds)
{
    return ds->tokens;
}

int plait_dataset_vocab(const struct plait_dataset *ds)
{
    return ds->segments[0].vocab;
}

bool plait_dataset_masked(const struct plait_dataset *ds)
{
    for (int i = 0; i < ds->nsegments; i++)
        if (ds->segments[i].masked)
            return true;
    return false;
}

const char *plait_dataset_tokenizer(const struct plait_dataset *ds)
{
    return ds->segments[0].tokenizer;
}

const char *plait_dataset_path(const struct plait_dataset *ds)
{
    return ds->path;
}

int64_t plait_dataset_samples(const struct plait_dataset *ds, int seq_len)
{
    return (ds->tokens - 1) / seq_len;
}

/* The segment that holds token `at` of the run. */
static const struct plait_segment *find_segment(const struct plait_dataset *ds,
                                                int64_t at)
{
    int low = 0, high = ds->nsegments - 1, middle;

    while (low < high) {
        middle = (low + high + 1) / 2;
        if (ds->segments[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return &ds->segments[low];
}

/* Bytes of each file that are hashed: its header and some of what follows. */
#define IDENTITY_BYTES 4096

int plait_dataset_identity(const struct plait_dataset *ds, int64_t *bytes,
                           uint64_t *hash, struct plait_error *err)
{
    unsigned char head[IDENTITY_BYTES];
    uint64_t h = PLAIT_HASH_START;
    int64_t total = 0;

    for (int i = 0; i < ds->nsegments; i++) {
        const struct plait_segment *s = &ds->segments[i];
        size_t n = s->size < IDENTITY_BYTES ? s->size : IDENTITY_BYTES;
        uint64_t size = s->size;

        if (plait_segment_read(s, 0, n, head, err) < 0)
            return -1;
        h = plait_hash_bytes(h, &size, sizeof(size));
        h = plait_hash_bytes(h, head, n);
        total += (int64_t)s->size;
    }
    *bytes = total;
    *hash = h;
    return 0;
}

void plait_dataset_expect(const struct plait_dataset *ds, int64_t index,
                          int seq_len)
{
    int64_t at = index * seq_len, left = seq_len + 1;
    const struct plait_segment *s = find_segment(ds, at);

    if (index < 0 || index >= plait_dataset_samples(ds, seq_len))
        return;
    for (; left > 0; s++) {
        int64_t n = s->first + s->count - at;

        if (n > left)
            n = left;
        if (n > 0)
            plait_segment_expect(s, at - s->first, n);
        at += n;
        left -= n;
    }
}

/* Read n tokens of sample `index`, from token `at` of a segment on. */
static int read_tokens(const struct plait_segment *s, int64_t index, int64_t at,
                       int64_t n, int vocab, int32_t *tokens,
                       struct plait_error *err)
{
    if (plait_segment_tokens(s, at, n, tokens, err) < 0)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        int32_t token = s->masked ? tokens[i] & INT32_MAX : tokens[i];

        if (token >= 0 && token < vocab)
            continue;
        errno = ERANGE;
        return plait_errorf(err,
                            "%s: sample %lld: token id %d at position "
                            "%lld is outside the vocabulary of %d",
                            s->path, (long long)index, token,
                            (long long)(at + i), vocab);
    }
    return 0;
}

/* Make the targets: the token after each input token. The last one is in
 * `target` already. A token of a prompt is input, but no target. */
static void split_sample(int seq_len, int32_t *input, int32_t *target)
{
    memcpy(target, input + 1, (size_t)(seq_len - 1) * sizeof(*target));
    for (int i = 0; i < seq_len; i++) {
        input[i] &= INT32_MAX;
        if (target[i] < 0)
            target[i] = -1;
    }
}

int plait_dataset_read(const struct plait_dataset *ds,
                       const struct plait_sequence_form *form, int64_t index,
                       int32_t *input, int32_t *target, struct plait_error *err)
{
    int seq_len = form->seq_len, vocab = form->vocab;
    int64_t at = index * seq_len, done = 0;
    const struct plait_segment *s;

    if (index < 0 || index >= plait_dataset_samples(ds, seq_len)) {
        errno = ERANGE;
        return plait_errorf(err, "%s: sample %lld of %lld", ds->path,
                            (long long)index,
                            (long long)plait_dataset_samples(ds, seq_len));
    }
    /* The token after the last input is only a target. */
    for (s = find_segment(ds, at); done < seq_len; s++) {
        int64_t n = s->first + s->count - at;

        if (n > seq_len - done)
            n = seq_len - done;
        if (n > 0 && read_tokens(s, index, at - s->first, n, vocab,
                                 input + done, err) < 0)
            return -1;
        done += n;
        at += n;
    }
    s = find_segment(ds, at);
    if (read_tokens(s, index, at - s->first, 1, vocab, target + seq_len - 1,
                    err) < 0)
        return -1;
    split_sample(seq_len, input, target);
    return 0;
}
