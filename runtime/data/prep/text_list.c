/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/text_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/data/prep/unpack.h"

/* The deepest nesting of folders, which stops at links that form a loop. */
enum { DEPTH_MOST = 64 };

void plait_text_list_clear(struct plait_text_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->file[i].path);
    free(list->file);
    memset(list, 0, sizeof(*list));
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    size_t m = strlen(end);

    return n > m && !memcmp(text + n - m, end, m);
}

static bool is_lines(const char *path)
{
    static const char *const packed[] = {".gz", ".zst", ".xz"};
    size_t n = strlen(path);

    for (int i = 0; i < 3; i++)
        if (ends_with(path, n, packed[i])) {
            n -= strlen(packed[i]);
            break;
        }
    return ends_with(path, n, ".jsonl") || ends_with(path, n, ".ndjson");
}

static int add_file(struct plait_text_list *list, const char *path,
                    const struct stat *st, bool lines, struct plait_error *err)
{
    struct plait_text_file *more;

    if (ends_with(path, strlen(path), ".parquet")) {
        errno = ENOTSUP;
        return plait_errorf(err,
                            "%s: Parquet is not supported: write its column "
                            "of texts as JSON lines (with DuckDB, or pyarrow) "
                            "and name the column by --field",
                            path);
    }
    more = realloc(list->file, (list->count + 1) * sizeof(*more));
    if (!more)
        return plait_errorf(err, "%s: out of memory", path);
    list->file = more;
    more += list->count;
    more->path = strdup(path);
    if (!more->path)
        return plait_errorf(err, "%s: out of memory", path);
    more->size = st->st_size;
    more->mtime =
        (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    more->lines = lines || is_lines(path);
    list->size += st->st_size;
    list->count++;
    return 0;
}

static int add_path(struct plait_text_list *list, const char *path, bool lines,
                    int depth, struct plait_error *err);

static int no_dots(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_folder(struct plait_text_list *list, const char *path,
                      bool lines, int depth, struct plait_error *err)
{
    struct dirent **entry;
    int n, rc = 0;
    char *inner;

    errno = ELOOP;
    if (depth > DEPTH_MOST)
        return plait_errorf(err, "%s: folders are nested more than %d deep",
                            path, DEPTH_MOST);
    n = scandir(path, &entry, no_dots, by_bytes);
    if (n < 0)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (rc == 0 && asprintf(&inner, "%s/%s", path, entry[i]->d_name) < 0)
            rc = plait_errorf(err, "%s: out of memory", path);
        if (rc == 0) {
            rc = add_path(list, inner, lines, depth + 1, err);
            free(inner);
        }
        free(entry[i]);
    }
    free(entry);
    return rc;
}

static int add_path(struct plait_text_list *list, const char *path, bool lines,
                    int depth, struct plait_error *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return add_folder(list, path, lines, depth, err);
    errno = EINVAL;
    if (depth > 0 && (!S_ISREG(st.st_mode) || st.st_size == 0))
        return 0;
    if (!S_ISREG(st.st_mode))
        return plait_errorf(err, "%s: not a regular file", path);
    if (st.st_size == 0)
        return plait_errorf(err, "%s: an empty file", path);
    return add_file(list, path, &st, lines, err);
}

int plait_text_list_add(struct plait_text_list *list, const char *path,
                        bool lines, struct plait_error *err)
{
    size_t before = list->count;

    if (add_path(list, path, lines, 0, err) < 0)
        return -1;
    errno = EINVAL;
    if (list->count == before)
        return plait_errorf(err, "%s: the folder contains no text", path);
    return 0;
}

/* -- what is no text ------------------------------------------------------ */

/* Bytes that no encoding of texts has more than by accident: NUL and the other
 * controls but those from \b to \r and ESC. */
static size_t count_controls(const unsigned char *text, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += text[i] < '\b' ||
                 (text[i] > '\r' && text[i] < ' ' && text[i] != 27);
    return count;
}

/* A program, picture or tensor would become tokens like any other bytes. More
 * than one control in twenty is no text; of random bytes one in ten is. */
static int check_text(const char *path, struct plait_error *err)
{
    struct plait_unpack *u = plait_unpack_open(path, err);
    unsigned char text[4096];
    int64_t n = u ? plait_unpack_read(u, (char *)text, sizeof(text), err) : -1;

    plait_unpack_close(u);
    if (n < 0)
        return -1;
    errno = EINVAL;
    if (n > 1 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2)))
        return plait_errorf(err,
                            "%s: UTF-16, and texts must be UTF-8: 'iconv -f "
                            "UTF-16 -t UTF-8 FILE >NEWFILE' converts it",
                            path);
    if (count_controls(text, (size_t)n) * 20 > (size_t)n)
        return plait_errorf(err,
                            "%s: a binary file, no text: of its first %d bytes "
                            "%d are control characters; leave it out",
                            path, (int)n, (int)count_controls(text, (size_t)n));
    return 0;
}

int plait_text_list_check(const struct plait_text_list *list,
                          struct plait_error *err)
{
    for (size_t i = 0; i < list->count; i++)
        if (check_text(list->file[i].path, err) < 0)
            return -1;
    return 0;
}
