/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/segment.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/data/images.h"

static const int widths[] = {[PLAIT_TOKEN_U8] = 1,
                             [PLAIT_TOKEN_U16] = 2,
                             [PLAIT_TOKEN_I16] = 2,
                             [PLAIT_TOKEN_I32] = 4,
                             [PLAIT_TOKEN_I64] = 8};

static uint32_t get32(const void *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return le32toh(value);
}

static uint64_t get64(const void *from)
{
    uint64_t value;

    memcpy(&value, from, sizeof(value));
    return le64toh(value);
}

void plait_segment_advise(const struct plait_segment *s)
{
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_RANDOM);
}

/* O_NONBLOCK: a pipe in the place of a file is refused, not waited for. */
static int open_file(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Map a whole regular file that has at least `least` bytes. The file stays open
 * in *file; NULL: it is closed. */
static int map_file(const char *path, size_t least, void **map, size_t *size,
                    int *file, struct plait_error *err)
{
    int fd = open_file(path), rc = -1;
    struct stat st;
    void *p;

    if (fd < 0 || fstat(fd, &st) < 0) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        plait_errorf(err, "%s: not a data file: %s", path,
                     S_ISDIR(st.st_mode) ? "a directory" : "no regular file");
        goto done;
    }
    if ((uint64_t)st.st_size < least) {
        errno = EINVAL;
        plait_errorf(err,
                     "%s: truncated: %lld bytes are less than its header of "
                     "%zu",
                     path, (long long)st.st_size, least);
        goto done;
    }
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        plait_errorf(err, "%s: mmap: %s", path, strerror(errno));
        goto done;
    }
    *map = p;
    *size = (size_t)st.st_size;
    if (file)
        *file = fd;
    rc = 0;
done:
    if (fd >= 0 && (rc < 0 || !file))
        close(fd);
    return rc;
}

int plait_segment_map(struct plait_segment *s, size_t least,
                      struct plait_error *err)
{
    return map_file(s->path, least, &s->map, &s->size, &s->fd, err);
}

/* The file must be neither shorter nor longer than the header says. */
static int check_size(const struct plait_segment *s, size_t header,
                      struct plait_error *err)
{
    uint64_t want = header + (uint64_t)s->count * widths[s->type];

    if (s->size == want)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: %s: the header says %lld tokens, %llu bytes in "
                        "all; the file has %zu",
                        s->path, s->size < want ? "truncated" : "too long",
                        (long long)s->count, (unsigned long long)want, s->size);
}

static int open_plait(struct plait_segment *s, struct plait_error *err)
{
    struct plait_shard_header header;

    if (plait_segment_map(s, PLAIT_SHARD_HEADER, err) < 0 ||
        plait_shard_decode(s->path, s->map, &header, err) < 0)
        return -1;
    s->type = header.width == 2 ? PLAIT_TOKEN_U16 : PLAIT_TOKEN_I32;
    s->offset = PLAIT_SHARD_HEADER;
    s->count = header.tokens;
    s->vocab = header.vocab;
    s->masked = header.masked;
    memcpy(s->tokenizer, header.tokenizer, sizeof(s->tokenizer));
    return check_size(s, PLAIT_SHARD_HEADER, err);
}

/* llm.c: 256 32-bit numbers, the first three magic, version and count; GPT-2
 * tokens of 16 bits, Llama-3 tokens of 32. */
enum { LLMC_HEADER = 1024, LLMC_GPT2 = 20240520, LLMC_LLAMA3 = 20240801 };

static int open_llmc(struct plait_segment *s, struct plait_error *err)
{
    const unsigned char *map;
    uint32_t kind, version;

    if (plait_segment_map(s, LLMC_HEADER, err) < 0)
        return -1;
    map = s->map;
    kind = get32(map);
    version = get32(map + 4);
    errno = EINVAL;
    if (kind != LLMC_GPT2 && kind != LLMC_LLAMA3)
        return plait_errorf(err,
                            "%s: not a token file of llm.c's: its magic is "
                            "%u, not %d or %d",
                            s->path, kind, LLMC_GPT2, LLMC_LLAMA3);
    if (version != (kind == LLMC_GPT2 ? 1 : 7))
        return plait_errorf(err,
                            "%s: llm.c token file of version %u; with magic "
                            "%u it would be %d",
                            s->path, version, kind, kind == LLMC_GPT2 ? 1 : 7);
    s->type = kind == LLMC_GPT2 ? PLAIT_TOKEN_U16 : PLAIT_TOKEN_I32;
    s->offset = LLMC_HEADER;
    s->count = get32(map + 8);
    return check_size(s, LLMC_HEADER, err);
}

/* Megatron's .idx: "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64
 * documents, then i32 lengths [sequences], i64 byte offsets [sequences], i64
 * first sequences [documents]. */
enum { MEGATRON_HEADER = 34 };
static const char megatron_magic[9] = "MMIDIDX\0";

static int megatron_type(int code)
{
    switch (code) {
    case 1:
        return PLAIT_TOKEN_U8;
    case 3:
        return PLAIT_TOKEN_I16;
    case 4:
        return PLAIT_TOKEN_I32;
    case 5:
        return PLAIT_TOKEN_I64;
    case 8:
        return PLAIT_TOKEN_U16;
    default:
        return -1;
    }
}

/* The sequences must follow each other without gaps, so that the .bin is one
 * run of tokens; Megatron writes such indices. */
static int read_index(struct plait_segment *s, const char *path,
                      const unsigned char *map, size_t size,
                      struct plait_error *err)
{
    uint64_t n = get64(map + 18), documents = get64(map + 26), at = 0;
    int type = megatron_type(map[17]);
    const unsigned char *lengths = map + MEGATRON_HEADER, *offsets;

    errno = EINVAL;
    if (memcmp(map, megatron_magic, sizeof(megatron_magic)) != 0)
        return plait_errorf(err,
                            "%s: not a Megatron index: the magic is "
                            "missing",
                            path);
    if (get64(map + 9) != 1)
        return plait_errorf(err, "%s: Megatron index of version %llu, not 1",
                            path, (unsigned long long)get64(map + 9));
    if (type < 0)
        return plait_errorf(err,
                            "%s: type code %d is not a token type (1, 3, 4, 5 "
                            "or 8)",
                            path, map[17]);
    if (n > size || documents > size ||
        size != MEGATRON_HEADER + n * 12 + documents * 8)
        return plait_errorf(err,
                            "%s: %llu sequences and %llu documents do not "
                            "make an index of %zu bytes",
                            path, (unsigned long long)n,
                            (unsigned long long)documents, size);
    offsets = lengths + n * 4;
    for (uint64_t i = 0; i < n; i++) {
        if (get64(offsets + i * 8) != at)
            return plait_errorf(err,
                                "%s: sequence %llu starts at byte %llu, not "
                                "%llu right after the one before",
                                path, (unsigned long long)i,
                                (unsigned long long)get64(offsets + i * 8),
                                (unsigned long long)at);
        at += (uint64_t)get32(lengths + i * 4) * widths[type];
    }
    s->type = (enum plait_token_type)type;
    s->count = (int64_t)(at / widths[type]);
    return 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n > m && !strcmp(text + n - m, end);
}

/* "X", "X.bin" or "X.idx" -> "X" + extension */
static char *sibling_path(const char *path, const char *extension)
{
    size_t n = strlen(path);
    char *out;

    if (ends_with(path, ".bin") || ends_with(path, ".idx"))
        n -= 4;
    return asprintf(&out, "%.*s%s", (int)n, path, extension) < 0 ? NULL : out;
}

static int open_megatron(struct plait_segment *s, struct plait_error *err)
{
    char *index = sibling_path(s->path, ".idx"),
         *data = sibling_path(s->path, ".bin");
    void *map = NULL;
    size_t size = 0;
    int rc = -1;

    if (!index || !data) {
        plait_errorf(err, "%s: out of memory", s->path);
        goto done;
    }
    free(s->path);
    s->path = data;
    data = NULL;
    if (map_file(index, MEGATRON_HEADER, &map, &size, NULL, err) < 0 ||
        read_index(s, index, map, size, err) < 0 ||
        plait_segment_map(s, 1, err) < 0)
        goto done;
    rc = check_size(s, 0, err);
done:
    if (map)
        munmap(map, size);
    free(index);
    free(data);
    return rc;
}

/* Which format a file has, by its first bytes or the index beside it; -1 with
 * the reason if it is none. */
static int find_format(const char *path, enum plait_data_format *format,
                       struct plait_error *err)
{
    char *index = sibling_path(path, ".idx");
    unsigned char head[9] = {0};
    bool has_index = index && access(index, R_OK) == 0;
    size_t got;
    ssize_t n;
    int fd;

    free(index);
    fd = open_file(path);
    if (fd < 0 && !has_index)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    *format = PLAIT_DATA_MEGATRON;
    if (fd < 0)
        return 0;
    n = read(fd, head, sizeof(head));
    got = n > 0 ? (size_t)n : 0;
    close(fd);
    if (got >= 8 && !memcmp(head, "PLAITTOK", 8))
        *format = PLAIT_DATA_PLAIT;
    else if (got >= 4 &&
             (get32(head) == LLMC_GPT2 || get32(head) == LLMC_LLAMA3))
        *format = PLAIT_DATA_LLMC;
    if (*format != PLAIT_DATA_MEGATRON || has_index ||
        plait_images_guess(path, head, got, format))
        return 0;
    errno = EINVAL;
    if (head[0] == 0x1f && head[1] == 0x8b)
        return plait_errorf(err, "%s: compressed; unpack it with gunzip first",
                            path);
    return plait_errorf(err,
                        "%s: not a token file: neither a plait shard, nor "
                        "llm.c's, nor a Megatron .bin with its .idx; use "
                        "plait-prep to make one from texts or images",
                        path);
}

int plait_segment_open(struct plait_segment *s, const char *path,
                       enum plait_data_format format, struct plait_error *err)
{
    int rc = -1;

    memset(s, 0, sizeof(*s));
    s->fd = -1;
    if (format == PLAIT_DATA_AUTO && find_format(path, &format, err) < 0)
        return -1;
    s->path = strdup(path);
    if (!s->path)
        return plait_errorf(err, "%s: out of memory", path);
    switch (format) {
    case PLAIT_DATA_PLAIT:
        rc = open_plait(s, err);
        break;
    case PLAIT_DATA_LLMC:
        rc = open_llmc(s, err);
        break;
    case PLAIT_DATA_MEGATRON:
        rc = open_megatron(s, err);
        break;
    case PLAIT_DATA_IDX:
        rc = plait_images_open_idx(s, err);
        break;
    case PLAIT_DATA_CIFAR10:
    case PLAIT_DATA_CIFAR100:
        rc = plait_images_open_cifar(s, format, err);
        break;
    case PLAIT_DATA_AUTO:
        break;
    }
    plait_segment_unmap(s);
    if (rc < 0)
        plait_segment_close(s);
    else
        plait_segment_advise(s);
    return rc;
}

void plait_segment_unmap(struct plait_segment *s)
{
    int saved = errno;

    if (s->map)
        munmap(s->map, s->size);
    s->map = NULL;
    errno = saved;
}

void plait_segment_close(struct plait_segment *s)
{
    int saved = errno;

    plait_segment_unmap(s);
    if (s->path && s->fd >= 0)
        close(s->fd);
    free(s->path);
    memset(s, 0, sizeof(*s));
    errno = saved;
}

void plait_segment_expect(const struct plait_segment *s, int64_t index,
                          int64_t n)
{
    posix_fadvise(s->fd, (off_t)s->offset + index * widths[s->type],
                  n * widths[s->type], POSIX_FADV_WILLNEED);
}

int plait_segment_read(const struct plait_segment *s, size_t offset, size_t n,
                       void *to, struct plait_error *err)
{
    size_t done = 0;
    ssize_t got;

    while (done < n) {
        got = pread(s->fd, (char *)to + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return plait_errorf(err, "%s: cannot read at byte %zu: %s", s->path,
                                offset + done, strerror(errno));
        if (got == 0) {
            errno = EIO;
            return plait_errorf(err,
                                "%s: truncated while it was read: it ends at "
                                "byte %zu and had %zu bytes before",
                                s->path, offset + done, s->size);
        }
        done += (size_t)got;
    }
    return 0;
}

static int32_t decode_token(enum plait_token_type type, const unsigned char *at)
{
    uint64_t token;
    uint16_t small;

    switch (type) {
    case PLAIT_TOKEN_U8:
        return *at;
    case PLAIT_TOKEN_U16:
        memcpy(&small, at, sizeof(small));
        return le16toh(small);
    case PLAIT_TOKEN_I16:
        memcpy(&small, at, sizeof(small));
        return (int16_t)le16toh(small);
    case PLAIT_TOKEN_I32:
        token = get32(at);
        break;
    default:
        token = get64(at);
    }
    return token > INT32_MAX ? -1 : (int32_t)token;
}

/* The highest bit is the mark, the others are the token. */
static int32_t decode_marked(enum plait_token_type type,
                             const unsigned char *at)
{
    uint32_t token;

    if (type == PLAIT_TOKEN_I32)
        return (int32_t)get32(at);
    token = (uint32_t)decode_token(type, at);
    return (int32_t)((token & 0x8000) << 16 | (token & 0x7fff));
}

int plait_segment_tokens(const struct plait_segment *s, int64_t index,
                         int64_t n, int32_t *tokens, struct plait_error *err)
{
    unsigned char raw[16384];
    int width = widths[s->type];
    int64_t most = (int64_t)sizeof(raw) / width, part;

    for (; n > 0; n -= part, index += part, tokens += part) {
        part = n < most ? n : most;
        if (plait_segment_read(s, s->offset + (size_t)index * width,
                               (size_t)part * width, raw, err) < 0)
            return -1;
        for (int64_t i = 0; i < part; i++)
            tokens[i] = s->masked ? decode_marked(s->type, raw + i * width)
                                  : decode_token(s->type, raw + i * width);
    }
    return 0;
}
