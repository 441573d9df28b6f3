/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/convert/torch_file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/convert/read_bytes.h"

/* The most bytes of a zip's list of entries and of a pickle: far more than
 * files of models have, and a limit on what a damaged file can make us read. */
#define BYTES_MOST ((uint64_t)1 << 26)

enum {
    END = 22,       /* bytes of the record at the end, without a comment */
    LOCATOR = 20,   /* of the record before it, which locates the long one */
    LONG_END = 56,  /* of the long record (zip64) */
    ENTRY = 46,     /* of an entry of the list */
    HEADER = 30,    /* of the header before an entry's data */
    COMMENT = 65535 /* the longest comment */
};

struct entry {
    const char *name; /* [n], in the list */
    uint16_t n;
    bool compressed;
    uint64_t size, header; /* header: its offset */
};

struct plait_torch_file {
    char *path;
    int fd;
    uint64_t start, size; /* of the zip in the file */
    unsigned char *list;  /* the zip's list of entries */
    uint64_t list_size;
    int nentries;
    struct entry *entries; /* sorted by name */
    size_t prefix;         /* size of "NAME/" in their names */
    unsigned char *bytes;  /* the pickle */
    struct plait_pickle *pickle;
};

static uint16_t get16(const unsigned char *at)
{
    uint16_t n;

    memcpy(&n, at, sizeof(n));
    return le16toh(n);
}

static uint32_t get32(const unsigned char *at)
{
    uint32_t n;

    memcpy(&n, at, sizeof(n));
    return le32toh(n);
}

static uint64_t get64(const unsigned char *at)
{
    uint64_t n;

    memcpy(&n, at, sizeof(n));
    return le64toh(n);
}

static int corrupt(const struct plait_torch_file *f, const char *what,
                   struct plait_error *err)
{
    errno = EINVAL;
    return plait_errorf(err, "%s: corrupt: %s", f->path, what);
}

int plait_torch_file_read(const struct plait_torch_file *f, uint64_t offset,
                          void *to, size_t size, struct plait_error *err)
{
    return plait_read_bytes(f->fd, f->path, f->start + offset, to, size, err);
}

/* -- the zip's list ------------------------------------------------------- */

/* Find the record of the end, which is in the last 64 KiB, before a comment. */
static int find_end(const struct plait_torch_file *f, uint64_t *end,
                    struct plait_error *err)
{
    uint64_t n = f->size < END + COMMENT ? f->size : END + COMMENT;
    unsigned char *tail = malloc(n ? n : 1);
    int rc = -1;

    if (!tail)
        return plait_errorf(err, "%s: out of memory", f->path);
    if (plait_torch_file_read(f, f->size - n, tail, n, err) < 0)
        goto done;
    for (uint64_t at = n; at >= END && rc < 0; at--)
        if (memcmp(tail + at - END, "PK\5\6", 4) == 0) {
            *end = f->size - n + at - END;
            rc = 0;
        }
    errno = EINVAL;
    if (rc < 0)
        plait_errorf(err,
                     "%s: not a file of torch.save's (a zip since PyTorch 1.6)",
                     f->path);
done:
    free(tail);
    return rc;
}

/* Find the list; the long record has its place and size where the short one
 * cannot hold them. */
static int find_list(const struct plait_torch_file *f, uint64_t *at,
                     uint64_t *size, uint64_t *n, struct plait_error *err)
{
    unsigned char end[END], more[LONG_END];
    uint64_t where = 0;

    if (find_end(f, &where, err) < 0 ||
        plait_torch_file_read(f, where, end, END, err) < 0)
        return -1;
    *n = get16(end + 10);
    *size = get32(end + 12);
    *at = get32(end + 16);
    if (*n != 0xffff && *size != 0xffffffff && *at != 0xffffffff)
        return 0;
    if (where < LOCATOR ||
        plait_torch_file_read(f, where - LOCATOR, more, LOCATOR, err) < 0 ||
        memcmp(more, "PK\6\7", 4) != 0)
        return corrupt(f, "the end record of the zip is truncated", err);
    where = get64(more + 8);
    if (f->size < LONG_END || where > f->size - LONG_END)
        return corrupt(f, "the end record of the zip points outside the file",
                       err);
    if (plait_torch_file_read(f, where, more, LONG_END, err) < 0)
        return -1;
    if (memcmp(more, "PK\6\6", 4) != 0)
        return corrupt(f, "the end record of the zip is truncated", err);
    *n = get64(more + 32);
    *size = get64(more + 40);
    *at = get64(more + 48);
    return 0;
}

/* Take 64-bit numbers from the extra field, where they are in this order. */
static int take_long(const unsigned char *extra, size_t n, struct entry *e,
                     bool long_stored)
{
    while (n >= 4) {
        size_t size = get16(extra + 2);

        if (size > n - 4)
            return -1;
        if (get16(extra) != 1) {
            extra += size + 4;
            n -= size + 4;
            continue;
        }
        extra += 4;
        if (e->size == 0xffffffff) {
            if (size < 8)
                return -1;
            e->size = get64(extra);
            extra += 8;
            size -= 8;
        }
        if (long_stored && size >= 8) {
            extra += 8;
            size -= 8;
        }
        if (e->header == 0xffffffff && size >= 8)
            e->header = get64(extra);
        return 0;
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int order = memcmp(x->name, y->name, n);

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static int read_entries(struct plait_torch_file *f, struct plait_error *err)
{
    const unsigned char *at = f->list, *end = f->list + f->list_size;

    for (int i = 0; i < f->nentries; i++) {
        struct entry *e = &f->entries[i];
        size_t extra, comment;

        if (end - at < ENTRY || memcmp(at, "PK\1\2", 4) != 0)
            return corrupt(f, "the directory of the zip is truncated", err);
        e->compressed = get16(at + 10) != 0;
        e->size = get32(at + 24);
        e->n = get16(at + 28);
        extra = get16(at + 30);
        comment = get16(at + 32);
        e->header = get32(at + 42);
        e->name = (const char *)at + ENTRY;
        if ((size_t)(end - at) - ENTRY < e->n + extra + comment ||
            take_long(at + ENTRY + e->n, extra, e,
                      get32(at + 20) == 0xffffffff) < 0)
            return corrupt(f, "the directory of the zip is truncated", err);
        at += ENTRY + e->n + extra + comment;
    }
    qsort(f->entries, (size_t)f->nentries, sizeof(*f->entries), by_name);
    return 0;
}

static int read_list(struct plait_torch_file *f, struct plait_error *err)
{
    uint64_t at, n;

    if (find_list(f, &at, &f->list_size, &n, err) < 0)
        return -1;
    if (at > f->size || f->list_size > f->size - at ||
        f->list_size > BYTES_MOST || n == 0 || n > f->list_size / ENTRY)
        return corrupt(f, "the directory of the zip lies outside the file",
                       err);
    f->list = malloc(f->list_size);
    f->entries = calloc(n, sizeof(*f->entries));
    if (!f->list || !f->entries)
        return plait_errorf(err, "%s: out of memory", f->path);
    f->nentries = (int)n;
    if (plait_torch_file_read(f, at, f->list, f->list_size, err) < 0)
        return -1;
    return read_entries(f, err);
}

/* -- entries -------------------------------------------------------------- */

/* The offset of an entry's data. */
static int find_data(const struct plait_torch_file *f, const struct entry *e,
                     uint64_t *at, struct plait_error *err)
{
    unsigned char header[HEADER];

    if (e->compressed)
        return corrupt(f, "an entry is compressed, which torch.save never does",
                       err);
    if (f->size < HEADER || e->header > f->size - HEADER)
        return corrupt(f, "an entry lies outside the file", err);
    if (plait_torch_file_read(f, e->header, header, HEADER, err) < 0)
        return -1;
    *at = e->header + HEADER + get16(header + 26) + get16(header + 28);
    if (memcmp(header, "PK\3\4", 4) != 0 || *at > f->size ||
        e->size > f->size - *at)
        return corrupt(f, "an entry lies outside the file", err);
    return 0;
}

/* The entry "NAME/" + folder + name [n]; NULL: there is none. */
static const struct entry *find_entry(const struct plait_torch_file *f,
                                      const char *folder, const char *name,
                                      size_t n)
{
    char whole[512];
    struct entry key = {.name = whole};
    size_t m = strlen(folder);

    if (f->prefix + m + n > sizeof(whole))
        return NULL;
    memcpy(whole, f->entries[0].name, f->prefix);
    memcpy(whole + f->prefix, folder, m);
    memcpy(whole + f->prefix + m, name, n);
    key.n = (uint16_t)(f->prefix + m + n);
    return bsearch(&key, f->entries, (size_t)f->nentries, sizeof(key), by_name);
}

static int read_pickle(struct plait_torch_file *f, struct plait_error *err)
{
    const char *slash = memchr(f->entries[0].name, '/', f->entries[0].n);
    const struct entry *e = NULL;
    unsigned char order[3];
    uint64_t at;

    if (slash) {
        f->prefix = (size_t)(slash - f->entries[0].name) + 1;
        e = find_entry(f, "", "data.pkl", 8);
    }
    errno = EINVAL;
    if (!e)
        return plait_errorf(err,
                            "%s: a zip, but not one of torch.save's: it has "
                            "no data.pkl",
                            f->path);
    if (e->size > BYTES_MOST)
        return corrupt(f, "its pickle is too long", err);
    if (find_data(f, e, &at, err) < 0)
        return -1;
    f->bytes = malloc(e->size ? e->size : 1);
    if (!f->bytes)
        return plait_errorf(err, "%s: out of memory", f->path);
    if (plait_torch_file_read(f, at, f->bytes, e->size, err) < 0)
        return -1;
    f->pickle = plait_pickle_parse(f->path, f->bytes, e->size, err);
    if (!f->pickle)
        return -1;
    e = find_entry(f, "", "byteorder", 9);
    if (!e || e->size != 3)
        return 0;
    if (find_data(f, e, &at, err) < 0 ||
        plait_torch_file_read(f, at, order, 3, err) < 0)
        return -1;
    errno = EINVAL;
    return memcmp(order, "big", 3) != 0
               ? 0
               : plait_errorf(err, "%s: its numbers are big-endian", f->path);
}

/* Where the zip is in its file; `size` UINT64_MAX: all of it. */
static int find_zip(struct plait_torch_file *f, uint64_t start, uint64_t size,
                    struct plait_error *err)
{
    struct stat st;
    uint64_t all;

    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0 || fstat(f->fd, &st) < 0)
        return plait_errorf(err, "%s: %s", f->path, strerror(errno));
    errno = EINVAL;
    if (!S_ISREG(st.st_mode))
        return plait_errorf(err, "%s: is not a file", f->path);
    all = (uint64_t)st.st_size;
    if (size == UINT64_MAX)
        size = all;
    if (start > all || size > all - start)
        return plait_errorf(err,
                            "%s: truncated: it has %" PRIu64
                            " bytes, and a tensor of %" PRIu64
                            " begins at byte %" PRIu64,
                            f->path, all, size, start);
    f->start = start;
    f->size = size;
    return 0;
}

struct plait_torch_file *plait_torch_file_open_at(const char *path,
                                                  uint64_t start, uint64_t size,
                                                  struct plait_error *err)
{
    struct plait_torch_file *f = calloc(1, sizeof(*f));

    if (f)
        f->fd = -1;
    if (!f || !(f->path = strdup(path))) {
        plait_errorf(err, "%s: out of memory", path);
        goto error;
    }
    if (find_zip(f, start, size, err) < 0 || read_list(f, err) < 0 ||
        read_pickle(f, err) < 0)
        goto error;
    return f;
error:
    plait_torch_file_close(f);
    return NULL;
}

struct plait_torch_file *plait_torch_file_open(const char *path,
                                               struct plait_error *err)
{
    return plait_torch_file_open_at(path, 0, UINT64_MAX, err);
}

void plait_torch_file_close(struct plait_torch_file *f)
{
    int saved = errno;

    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    plait_pickle_destroy(f->pickle);
    free(f->bytes);
    free(f->entries);
    free(f->list);
    free(f->path);
    free(f);
    errno = saved;
}

const struct plait_pickle_value *
plait_torch_file_root(const struct plait_torch_file *f)
{
    return plait_pickle_root(f->pickle);
}

int plait_torch_file_data(const struct plait_torch_file *f, const char *key,
                          size_t n, uint64_t *offset, uint64_t *size,
                          struct plait_error *err)
{
    const struct entry *e = find_entry(f, "data/", key, n);

    errno = EINVAL;
    if (!e)
        return plait_errorf(err, "has no data in this file");
    if (find_data(f, e, offset, err) < 0)
        return -1;
    *size = e->size;
    return 0;
}
