/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "shard.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static const char magic[8] = "PLAITTOK";

static void put32(unsigned char *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof(value));
}

static uint32_t get32(const unsigned char *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return le32toh(value);
}

static uint32_t checksum(const unsigned char *bytes)
{
    return (uint32_t)crc32(crc32(0, NULL, 0), bytes, 60);
}

void plait_shard_encode(const struct plait_shard_header *header,
                        unsigned char bytes[PLAIT_SHARD_HEADER])
{
    uint64_t tokens = htole64((uint64_t)header->tokens);

    memset(bytes, 0, PLAIT_SHARD_HEADER);
    memcpy(bytes, magic, sizeof(magic));
    put32(bytes + 8, 1);
    put32(bytes + 12, (uint32_t)header->width);
    memcpy(bytes + 16, &tokens, sizeof(tokens));
    put32(bytes + 24, (uint32_t)header->vocab);
    memcpy(bytes + 28, header->tokenizer, PLAIT_SHARD_TOKENIZER);
    put32(bytes + 60, checksum(bytes));
}

int plait_shard_decode(const char *name,
                       const unsigned char bytes[PLAIT_SHARD_HEADER],
                       struct plait_shard_header *header,
                       struct plait_error *err)
{
    uint32_t width = get32(bytes + 12), vocab = get32(bytes + 24);
    uint64_t tokens;

    errno = EINVAL;
    memcpy(&tokens, bytes + 16, sizeof(tokens));
    tokens = le64toh(tokens);
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return plait_errorf(err, "%s: no plait shard: the magic is missing",
                            name);
    if (get32(bytes + 8) != 1)
        return plait_errorf(err,
                            "%s: plait shard of version %u; this program "
                            "reads version 1",
                            name, get32(bytes + 8));
    if (get32(bytes + 60) != checksum(bytes))
        return plait_errorf(err,
                            "%s: garbled header: its checksum is %08x, not "
                            "%08x as it says",
                            name, checksum(bytes), get32(bytes + 60));
    if ((width != 2 && width != 4) || vocab < 1 || vocab > INT_MAX ||
        tokens > INT64_MAX / 8 || bytes[28 + PLAIT_SHARD_TOKENIZER - 1])
        return plait_errorf(err,
                            "%s: header makes no sense: %u bytes a token, "
                            "vocabulary %u, %llu tokens",
                            name, width, vocab, (unsigned long long)tokens);
    header->width = (int)width;
    header->tokens = (int64_t)tokens;
    header->vocab = (int)vocab;
    memcpy(header->tokenizer, bytes + 28, PLAIT_SHARD_TOKENIZER);
    return 0;
}

struct plait_shard_writer {
    struct plait_shard_header header;
    char *path, *temporary;
    FILE *file;
};

static int writer_error(const struct plait_shard_writer *w,
                        struct plait_error *err)
{
    return plait_errorf(err, "%s: cannot write: %s", w->temporary,
                        strerror(errno));
}

static int write_header(struct plait_shard_writer *w)
{
    unsigned char bytes[PLAIT_SHARD_HEADER];

    plait_shard_encode(&w->header, bytes);
    return fwrite(bytes, sizeof(bytes), 1, w->file) == 1 ? 0 : -1;
}

struct plait_shard_writer *plait_shard_writer_create(const char *path,
                                                     const char *tokenizer,
                                                     int vocab,
                                                     struct plait_error *err)
{
    struct plait_shard_writer *w = calloc(1, sizeof(*w));

    if (!w || !(w->path = strdup(path)) ||
        asprintf(&w->temporary, "%s.tmp", path) < 0) {
        plait_errorf(err, "%s: out of memory", path);
        goto error;
    }
    snprintf(w->header.tokenizer, sizeof(w->header.tokenizer), "%s", tokenizer);
    w->header.vocab = vocab;
    w->header.width = vocab <= 65536 ? 2 : 4;
    w->file = fopen(w->temporary, "we");
    if (!w->file || write_header(w) < 0) {
        writer_error(w, err);
        goto error;
    }
    return w;
error:
    plait_shard_writer_destroy(w);
    return NULL;
}

int plait_shard_writer_add(struct plait_shard_writer *w, const int32_t *tokens,
                           size_t n, struct plait_error *err)
{
    size_t width = (size_t)w->header.width, done, part, i;
    uint16_t narrow[4096];
    uint32_t wide[4096];

    for (done = 0; done < n; done += part) {
        part = n - done < 4096 ? n - done : 4096;
        for (i = 0; i < part; i++) {
            narrow[i] = htole16((uint16_t)tokens[done + i]);
            wide[i] = htole32((uint32_t)tokens[done + i]);
        }
        if (fwrite(width == 2 ? (void *)narrow : (void *)wide, width, part,
                   w->file) != part)
            return writer_error(w, err);
    }
    w->header.tokens += (int64_t)n;
    return 0;
}

int64_t plait_shard_writer_tokens(const struct plait_shard_writer *w)
{
    return w->header.tokens;
}

int plait_shard_writer_finish(struct plait_shard_writer *w,
                              struct plait_error *err)
{
    FILE *file = w->file;
    bool good = fseek(file, 0, SEEK_SET) == 0 && write_header(w) == 0 &&
                fflush(file) == 0 && fsync(fileno(file)) == 0;

    w->file = NULL;
    if (!good) {
        writer_error(w, err);
        fclose(file);
        return -1;
    }
    if (fclose(file) != 0)
        return writer_error(w, err);
    if (rename(w->temporary, w->path) < 0)
        return writer_error(w, err);
    free(w->temporary);
    w->temporary = NULL;
    return 0;
}

void plait_shard_writer_destroy(struct plait_shard_writer *w)
{
    int saved = errno;

    if (!w)
        return;
    if (w->file)
        fclose(w->file);
    if (w->temporary)
        unlink(w->temporary);
    free(w->temporary);
    free(w->path);
    free(w);
    errno = saved;
}
