/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT = 1 << 18 };

struct plait_unpack {
    const struct kind *kind;
    char *path;
    int fd;
    char *input; /* [INPUT], of which used .. filled are not consumed yet */
    size_t used, filled;
    bool ended;  /* the end of the file was read */
    bool inside; /* a packed stream has begun and not ended */
    int64_t size, offset, given;
    z_stream gzip;
    ZSTD_DStream *zstd;
    lzma_stream xz;
};

/* A format. step: unpacks from the input into `to`, and sets `inside`. Returns
 * the bytes made; -1 if the input is damaged. */
struct kind {
    const char *name, *magic;
    size_t size;
    int (*start)(struct plait_unpack *u);
    int64_t (*step)(struct plait_unpack *u, char *to, size_t size);
    void (*stop)(struct plait_unpack *u);
};

/* -- gzip ----------------------------------------------------------------- */

static int gzip_start(struct plait_unpack *u)
{
    return inflateInit2(&u->gzip, 15 + 16) == Z_OK ? 0 : -1;
}

static int64_t gzip_step(struct plait_unpack *u, char *to, size_t size)
{
    size_t most = size < UINT32_MAX ? size : UINT32_MAX;
    int rc;

    if (!u->inside && inflateReset(&u->gzip) != Z_OK)
        return -1;
    u->gzip.next_in = (unsigned char *)u->input + u->used;
    u->gzip.avail_in = (unsigned)(u->filled - u->used);
    u->gzip.next_out = (unsigned char *)to;
    u->gzip.avail_out = (unsigned)most;
    rc = inflate(&u->gzip, Z_NO_FLUSH);
    u->used = u->filled - u->gzip.avail_in;
    u->inside = rc != Z_STREAM_END;
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return -1;
    return (int64_t)(most - u->gzip.avail_out);
}

static void gzip_stop(struct plait_unpack *u)
{
    inflateEnd(&u->gzip);
}

/* -- zstd ----------------------------------------------------------------- */

static int zstd_start(struct plait_unpack *u)
{
    u->zstd = ZSTD_createDStream();
    return u->zstd ? 0 : -1;
}

static int64_t zstd_step(struct plait_unpack *u, char *to, size_t size)
{
    ZSTD_inBuffer in = {u->input + u->used, u->filled - u->used, 0};
    ZSTD_outBuffer out = {to, size, 0};
    size_t rc = ZSTD_decompressStream(u->zstd, &out, &in);

    u->used += in.pos;
    u->inside = rc != 0;
    return ZSTD_isError(rc) ? -1 : (int64_t)out.pos;
}

static void zstd_stop(struct plait_unpack *u)
{
    ZSTD_freeDStream(u->zstd);
}

/* -- xz ------------------------------------------------------------------- */

static int xz_start(struct plait_unpack *u)
{
    u->xz = (lzma_stream)LZMA_STREAM_INIT;
    return lzma_stream_decoder(&u->xz, UINT64_MAX, 0) == LZMA_OK ? 0 : -1;
}

static int64_t xz_step(struct plait_unpack *u, char *to, size_t size)
{
    lzma_ret rc;

    if (!u->inside && xz_start(u) < 0)
        return -1;
    u->xz.next_in = (uint8_t *)u->input + u->used;
    u->xz.avail_in = u->filled - u->used;
    u->xz.next_out = (uint8_t *)to;
    u->xz.avail_out = size;
    rc = lzma_code(&u->xz, LZMA_RUN);
    u->used = u->filled - u->xz.avail_in;
    u->inside = rc != LZMA_STREAM_END;
    if (rc == LZMA_STREAM_END)
        lzma_end(&u->xz);
    if (rc != LZMA_OK && rc != LZMA_STREAM_END && rc != LZMA_BUF_ERROR)
        return -1;
    return (int64_t)(size - u->xz.avail_out);
}

static void xz_stop(struct plait_unpack *u)
{
    lzma_end(&u->xz);
}

/* -- text as it is -------------------------------------------------------- */

static int64_t plain_step(struct plait_unpack *u, char *to, size_t size)
{
    size_t n = u->filled - u->used;

    n = n < size ? n : size;
    memcpy(to, u->input + u->used, n);
    u->used += n;
    return (int64_t)n;
}

static const struct kind plain = {.name = "text", .step = plain_step};

static const struct kind kinds[] = {
    {"gzip", "\x1f\x8b", 2, gzip_start, gzip_step, gzip_stop},
    {"zstd", "\x28\xb5\x2f\xfd", 4, zstd_start, zstd_step, zstd_stop},
    /* pzstd begins with a frame to be skipped. */
    {"zstd", "\x50\x2a\x4d\x18", 4, zstd_start, zstd_step, zstd_stop},
    {"xz",
     "\xfd"
     "7zXZ",
     6, xz_start, xz_step, xz_stop},
};

static const struct {
    const char *magic, *says;
} refused[] = {
    {"PAR1", "Parquet is not supported: write its column of texts as JSON "
             "lines (with DuckDB, or pyarrow) and name the column by --field"},
    {"PK\x03\x04", "a zip archive is not supported: unpack it"},
    {"BZh",
     "bzip2 is not supported: unpack it, or pack it with zstd, xz or gzip"},
};

/* -- any ------------------------------------------------------------------ */

/* Read more input after what is left; -1 with errno. */
static int fill_input(struct plait_unpack *u)
{
    ssize_t n;

    memmove(u->input, u->input + u->used, u->filled - u->used);
    u->filled -= u->used;
    u->used = 0;
    while (!u->ended && u->filled < INPUT) {
        n = read(u->fd, u->input + u->filled, INPUT - u->filled);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        u->ended = n == 0;
        u->filled += (size_t)n;
        u->offset += n;
    }
    return 0;
}

static int find_kind(struct plait_unpack *u, struct plait_error *err)
{
    u->kind = &plain;
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
        if (u->filled >= 4 &&
            !memcmp(u->input, refused[i].magic, strlen(refused[i].magic))) {
            errno = ENOTSUP;
            return plait_errorf(err, "%s: %s", u->path, refused[i].says);
        }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (u->filled >= kinds[i].size &&
            !memcmp(u->input, kinds[i].magic, kinds[i].size))
            u->kind = &kinds[i];
    if (u->kind->start && u->kind->start(u) < 0) {
        u->kind = &plain;
        return plait_errorf(err, "%s: out of memory", u->path);
    }
    u->inside = u->kind != &plain;
    return 0;
}

struct plait_unpack *plait_unpack_open(const char *path,
                                       struct plait_error *err)
{
    struct plait_unpack *u = calloc(1, sizeof(*u));
    struct stat st;

    if (!u || !(u->path = strdup(path)) || !(u->input = malloc(INPUT))) {
        plait_errorf(err, "%s: out of memory", path);
        if (u)
            free(u->path);
        free(u);
        return NULL;
    }
    u->kind = &plain;
    u->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (u->fd < 0 || fstat(u->fd, &st) < 0) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        errno = EINVAL;
        plait_errorf(err, "%s: not a regular file", path);
    } else if (fill_input(u) < 0) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
    } else if (find_kind(u, err) == 0) {
        u->size = st.st_size;
        return u;
    }
    plait_unpack_close(u);
    return NULL;
}

void plait_unpack_close(struct plait_unpack *u)
{
    int saved = errno;

    if (!u)
        return;
    if (u->kind->stop)
        u->kind->stop(u);
    if (u->fd >= 0)
        close(u->fd);
    free(u->path);
    free(u->input);
    free(u);
    errno = saved;
}

int64_t plait_unpack_read(struct plait_unpack *u, char *to, size_t size,
                          struct plait_error *err)
{
    size_t done = 0, before;
    int64_t n;

    while (done < size) {
        if (u->used == u->filled && !u->ended && fill_input(u) < 0)
            return plait_errorf(err, "%s: %s", u->path, strerror(errno));
        if (u->used == u->filled && !u->inside)
            break;
        before = u->used;
        n = u->kind->step(u, to + done, size - done);
        errno = EINVAL;
        if (n == 0 && u->used == before && u->used == u->filled && u->ended)
            return plait_errorf(err, "%s: truncated: its %s data have no end",
                                u->path, u->kind->name);
        if (n < 0 || (n == 0 && u->used == before && u->used < u->filled))
            return plait_errorf(err,
                                "%s: damaged: it begins as %s data, and what "
                                "follows is not valid",
                                u->path, u->kind->name);
        done += (size_t)n;
    }
    u->given += (int64_t)done;
    return (int64_t)done;
}

int plait_unpack_skip(struct plait_unpack *u, int64_t at,
                      struct plait_error *err)
{
    char *waste;
    int64_t n = 0;

    if (u->kind == &plain) {
        if (lseek(u->fd, (off_t)at, SEEK_SET) < 0)
            return plait_errorf(err, "%s: %s", u->path, strerror(errno));
        u->used = u->filled = 0;
        u->ended = false;
        u->offset = u->given = at;
        return 0;
    }
    waste = malloc(INPUT);
    if (!waste)
        return plait_errorf(err, "%s: out of memory", u->path);
    while (n >= 0 && u->given < at) {
        size_t most = at - u->given < INPUT ? (size_t)(at - u->given) : INPUT;

        n = plait_unpack_read(u, waste, most, err);
        if (n == 0) {
            errno = ESTALE;
            n = plait_errorf(err, "%s: shorter than it was", u->path);
        }
    }
    free(waste);
    return n < 0 ? -1 : 0;
}

int64_t plait_unpack_size(const struct plait_unpack *u)
{
    return u->kind == &plain ? u->size : -1;
}

int64_t plait_unpack_offset(const struct plait_unpack *u)
{
    return u->offset - (int64_t)(u->filled - u->used);
}
