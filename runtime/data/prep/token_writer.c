/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/token_writer.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/data/prep/megatron_index.h"
#include "runtime/data/shard.h"
#include "topology/base/files.h"

enum { LLMC_HEADER = 1024 };

struct output {
    char *path, *temporary;
    FILE *file;
};

struct plait_token_writer {
    struct plait_token_form form;
    int width, header; /* bytes */
    bool complete;
    struct plait_token_mark at;
    struct output tokens;
    struct output lengths; /* Megatron's: the tokens of each document */
    struct output index;   /* ... and the .idx that is made of them */
};

static int output_error(const struct output *o, struct plait_error *err)
{
    return plait_errorf(err, "%s: cannot write: %s",
                        o->temporary ? o->temporary : o->path, strerror(errno));
}

/* -- files with a temporary name ------------------------------------------ */

/* A file that an interrupted writer left must have at least what its mark
 * says. */
static int cut_output(struct output *o, int64_t size)
{
    struct stat st;

    if (fstat(fileno(o->file), &st) < 0)
        return -1;
    if (st.st_size < size) {
        errno = ESTALE;
        return -1;
    }
    return ftruncate(fileno(o->file), (off_t)size) < 0 ||
                   fseeko(o->file, (off_t)size, SEEK_SET) < 0
               ? -1
               : 0;
}

/* size: bytes to keep of an interrupted file; -1: none. */
static int open_output(struct output *o, const char *stem, const char *ending,
                       int64_t size, struct plait_error *err)
{
    int fd;

    if (asprintf(&o->path, "%s%s", stem, ending) < 0) {
        o->path = NULL;
        return plait_errorf(err, "%s: out of memory", stem);
    }
    if (asprintf(&o->temporary, "%s.tmp", o->path) < 0) {
        o->temporary = NULL;
        return plait_errorf(err, "%s: out of memory", stem);
    }
    fd = plait_files_lock(o->temporary, size < 0);
    if (fd < 0 && errno == EWOULDBLOCK) {
        plait_errorf(err, "%s: another plait-prep is writing it", o->temporary);
        free(o->temporary);
        o->temporary = NULL; /* the other process owns it */
        errno = EWOULDBLOCK;
        return -1;
    }
    if (fd < 0)
        return output_error(o, err);
    o->file = fdopen(fd, "r+");
    if (!o->file) {
        close(fd);
        return output_error(o, err);
    }
    /* EINVAL: not a regular file, which cannot be truncated. */
    if (size < 0 && ftruncate(fd, 0) < 0 && errno != EINVAL)
        return output_error(o, err);
    return size >= 0 && cut_output(o, size) < 0 ? output_error(o, err) : 0;
}

static int sync_output(struct output *o, struct plait_error *err)
{
    if (!o->file)
        return 0;
    if (fflush(o->file) == 0 && fdatasync(fileno(o->file)) == 0)
        return 0;
    return output_error(o, err);
}

static void keep_output(struct output *o)
{
    free(o->temporary);
    o->temporary = NULL;
}

static int publish_output(struct output *o, struct plait_error *err)
{
    FILE *file = o->file;

    o->file = NULL;
    if (fflush(file) != 0 || fsync(fileno(file)) < 0) {
        output_error(o, err);
        fclose(file);
        return -1;
    }
    /* The lock ends when the file is closed: rename it before. */
    if (rename(o->temporary, o->path) < 0) {
        output_error(o, err);
        fclose(file);
        return -1;
    }
    keep_output(o);
    return fclose(file) != 0 ? output_error(o, err) : 0;
}

static void close_output(struct output *o)
{
    if (o->temporary)
        unlink(o->temporary);
    if (o->file)
        fclose(o->file);
    free(o->temporary);
    free(o->path);
}

/* -- the header of each format -------------------------------------------- */

/* llm.c: 256 numbers of 32 bits: magic, version, tokens. */
static void encode_llmc(const struct plait_token_writer *w,
                        unsigned char *bytes)
{
    uint32_t head[3] = {htole32(w->width == 2 ? 20240520 : 20240801),
                        htole32(w->width == 2 ? 1 : 7),
                        htole32((uint32_t)w->at.tokens)};

    memset(bytes, 0, LLMC_HEADER);
    memcpy(bytes, head, sizeof(head));
}

static int write_header(struct plait_token_writer *w, struct plait_error *err)
{
    struct plait_shard_header shard = {.width = w->width,
                                       .tokens = w->at.tokens,
                                       .vocab = w->form.vocab,
                                       .masked = w->form.masked};
    unsigned char bytes[LLMC_HEADER];

    if (w->form.format == PLAIT_DATA_LLMC) {
        encode_llmc(w, bytes);
    } else {
        snprintf(shard.tokenizer, sizeof(shard.tokenizer), "%s",
                 w->form.tokenizer);
        plait_shard_encode(&shard, bytes);
    }
    if (w->header == 0 ||
        (fseeko(w->tokens.file, 0, SEEK_SET) == 0 &&
         fwrite(bytes, (size_t)w->header, 1, w->tokens.file) == 1))
        return 0;
    return output_error(&w->tokens, err);
}

static void choose_layout(struct plait_token_writer *w)
{
    bool small = w->form.vocab <= (w->form.masked ? 1 << 15 : 1 << 16);

    w->header =
        w->form.format == PLAIT_DATA_LLMC ? LLMC_HEADER : PLAIT_SHARD_HEADER;
    if (w->form.format == PLAIT_DATA_MEGATRON) {
        w->header = 0;
        small = plait_megatron_is_small(w->form.vocab);
    }
    w->width = small ? 2 : 4;
}

/* -- the writer ------------------------------------------------------------ */

struct plait_token_writer *
plait_token_writer_create(const char *stem, const struct plait_token_form *form,
                          const struct plait_token_mark *mark,
                          struct plait_error *err)
{
    struct plait_token_writer *w = calloc(1, sizeof(*w));

    if (!w) {
        plait_errorf(err, "%s: out of memory", stem);
        return NULL;
    }
    w->form = *form;
    choose_layout(w);
    if (mark)
        w->at = *mark;
    if (open_output(&w->tokens, stem, ".bin",
                    mark ? w->header + mark->tokens * w->width : -1, err) < 0)
        goto error;
    if (form->format == PLAIT_DATA_MEGATRON &&
        open_output(&w->lengths, stem, ".lengths",
                    mark ? mark->documents * 4 : -1, err) < 0)
        goto error;
    if (!mark && write_header(w, err) < 0)
        goto error;
    return w;
error:
    /* What an interrupted writer left can be gone on with another time, unless
     * it is too short. */
    if (mark && errno != ESTALE)
        plait_token_writer_keep(w);
    plait_token_writer_destroy(w);
    return NULL;
}

static int write_tokens(struct plait_token_writer *w, const int32_t *tokens,
                        size_t n)
{
    uint16_t narrow[4096];
    uint32_t wide[4096];
    size_t part;

    for (; n > 0; tokens += part, n -= part) {
        part = n < 4096 ? n : 4096;
        for (size_t i = 0; i < part; i++) {
            narrow[i] =
                htole16((uint16_t)tokens[i] | (tokens[i] < 0 ? 0x8000 : 0));
            wide[i] = htole32((uint32_t)tokens[i]);
        }
        if (fwrite(w->width == 2 ? (void *)narrow : (void *)wide,
                   (size_t)w->width, part, w->tokens.file) != part)
            return -1;
    }
    return 0;
}

static int add_length(struct plait_token_writer *w, int64_t length,
                      struct plait_error *err)
{
    uint32_t bytes = htole32((uint32_t)length);

    w->at.documents++;
    w->at.open = 0;
    if (w->form.format != PLAIT_DATA_MEGATRON)
        return 0;
    errno = EOVERFLOW;
    if (length > INT32_MAX)
        return plait_errorf(err,
                            "%s: a document of %lld tokens; Megatron's format "
                            "has at most %d in one",
                            w->tokens.path, (long long)length, INT32_MAX);
    return fwrite(&bytes, sizeof(bytes), 1, w->lengths.file) == 1
               ? 0
               : output_error(&w->lengths, err);
}

int plait_token_writer_add(struct plait_token_writer *w, const int32_t *tokens,
                           size_t n, const int64_t *ends, size_t nends,
                           struct plait_error *err)
{
    int64_t done = 0;

    errno = EOVERFLOW;
    if (w->form.format == PLAIT_DATA_LLMC &&
        w->at.tokens + (int64_t)n > INT32_MAX)
        return plait_errorf(err,
                            "%s: llm.c's format has at most %d tokens in a "
                            "file: prepare fewer texts at a time",
                            w->tokens.path, INT32_MAX);
    if (write_tokens(w, tokens, n) < 0)
        return output_error(&w->tokens, err);
    for (size_t i = 0; i < nends; i++) {
        if (add_length(w, w->at.open + ends[i] - done, err) < 0)
            return -1;
        done = ends[i];
    }
    w->at.open += (int64_t)n - done;
    w->at.tokens += (int64_t)n;
    return 0;
}

int plait_token_writer_sync(struct plait_token_writer *w,
                            struct plait_token_mark *mark,
                            struct plait_error *err)
{
    if (sync_output(&w->tokens, err) < 0 || sync_output(&w->lengths, err) < 0)
        return -1;
    *mark = w->at;
    return 0;
}

struct plait_token_mark
plait_token_writer_mark(const struct plait_token_writer *w)
{
    return w->at;
}

static int write_index(struct plait_token_writer *w, struct plait_error *err)
{
    char *stem = strndup(w->tokens.path, strlen(w->tokens.path) - 4);
    int rc;

    if (!stem)
        return plait_errorf(err, "%s: out of memory", w->tokens.path);
    rc = open_output(&w->index, stem, ".idx", -1, err);
    if (rc == 0 &&
        (rc = plait_megatron_write_index(w->index.file, w->lengths.file,
                                         w->at.documents, w->width)) < 0)
        output_error(&w->index, err);
    free(stem);
    return rc < 0 ? -1 : sync_output(&w->index, err);
}

int plait_token_writer_complete(struct plait_token_writer *w,
                                struct plait_error *err)
{
    w->complete = true;
    if (w->at.tokens == 0)
        return 0;
    if (write_header(w, err) < 0 || sync_output(&w->tokens, err) < 0)
        return -1;
    return w->form.format == PLAIT_DATA_MEGATRON ? write_index(w, err) : 0;
}

/* Remove the index of an older run, which belongs to other tokens. */
static void remove_older(const struct plait_token_writer *w)
{
    size_t n = strlen(w->tokens.path) - 4;
    char *index;

    if (w->at.tokens == 0)
        unlink(w->tokens.path);
    if ((w->form.format != PLAIT_DATA_MEGATRON || w->at.tokens == 0) &&
        asprintf(&index, "%.*s.idx", (int)n, w->tokens.path) >= 0) {
        unlink(index);
        free(index);
    }
}

int plait_token_writer_finish(struct plait_token_writer *w,
                              struct plait_error *err)
{
    if (!w->complete && plait_token_writer_complete(w, err) < 0)
        return -1;
    if (w->index.file && publish_output(&w->index, err) < 0)
        return -1;
    if (w->at.tokens > 0 && publish_output(&w->tokens, err) < 0)
        return -1;
    remove_older(w);
    return 0;
}

void plait_token_writer_keep(struct plait_token_writer *w)
{
    if (!w)
        return;
    keep_output(&w->tokens);
    keep_output(&w->lengths);
}

void plait_token_writer_destroy(struct plait_token_writer *w)
{
    int saved = errno;

    if (!w)
        return;
    close_output(&w->tokens);
    close_output(&w->lengths);
    close_output(&w->index);
    free(w);
    errno = saved;
}
