/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/data/prep/image_source.h"

/* NPY, NumPy's format (numpy.lib.format): a magic, a version, the length of a
 * Python dictionary as text, which gives type and shape, then the numbers. */

#define LONGEST_HEADER 65536
#define LARGEST_IMAGE (1 << 26) /* numbers */

struct array {
    char *path;
    FILE *file;
    char kind; /* b, u, i, f */
    int size;  /* of a number, in bytes */
    int ndims;
    int64_t dim[4];
    long start; /* offset of the numbers */
    int64_t at; /* rows read */
};

struct npy {
    struct plait_image_source source;
    struct array images, labels; /* labels.file NULL: no labels */
    unsigned char *row;
};

static void close_array(struct array *a)
{
    if (a->file)
        fclose(a->file);
    free(a->path);
}

/* -- the header ------------------------------------------------------------ */

/* The text after 'KEY': in the dictionary, or NULL. */
static const char *find_value(const char *text, const char *key)
{
    const char *p = strstr(text, key);

    if (!p)
        return NULL;
    p += strlen(key);
    p += strspn(p, " ");
    if (*p++ != ':')
        return NULL;
    return p + strspn(p, " ");
}

static int parse_type(struct array *a, const char *p, struct plait_error *err)
{
    char order = 0, kind = 0;
    int size = 0;

    errno = EINVAL;
    if (!p || sscanf(p, "'%c%c%d'", &order, &kind, &size) != 3)
        return plait_errorf(err, "%s: its header has no plain 'descr'",
                            a->path);
    if (order == '>' || !strchr("buif", kind) ||
        !(size == 1 || size == 2 || size == 4 || size == 8) ||
        (kind == 'f' && size < 4) || (kind == 'b' && size > 1))
        return plait_errorf(err,
                            "%s: the type %c%c%d is not supported; use "
                            "integers, <f4 or <f8",
                            a->path, order, kind, size);
    a->kind = kind;
    a->size = size;
    return 0;
}

static int parse_shape(struct array *a, const char *p, struct plait_error *err)
{
    char *end;

    errno = EINVAL;
    if (!p || *p++ != '(')
        return plait_errorf(err, "%s: its header has no 'shape'", a->path);
    for (a->ndims = 0; *p && *p != ')'; a->ndims++) {
        long long n = strtoll(p, &end, 10);

        if (end == p || n < 0 || n > INT32_MAX || a->ndims == 4)
            return plait_errorf(err,
                                "%s: a shape of more than 4 dimensions, or "
                                "with a side that is not a number below 2^31",
                                a->path);
        a->dim[a->ndims] = n;
        p = end + strspn(end, ", ");
    }
    return *p ? 0 : plait_errorf(err, "%s: its header has no 'shape'", a->path);
}

static int parse_header(struct array *a, const char *text,
                        struct plait_error *err)
{
    const char *order = find_value(text, "'fortran_order'");

    if (parse_type(a, find_value(text, "'descr'"), err) < 0 ||
        parse_shape(a, find_value(text, "'shape'"), err) < 0)
        return -1;
    errno = EINVAL;
    if (!order || strncmp(order, "False", 5) != 0)
        return plait_errorf(err,
                            "%s: it is in Fortran order; save it with "
                            "numpy.save(F, numpy.ascontiguousarray(x))",
                            a->path);
    return 0;
}

/* Whether the file has as many bytes as its shape says. */
static int check_size(const struct array *a, struct plait_error *err)
{
    uint64_t want = (uint64_t)a->size;
    struct stat st;

    for (int i = 0; i < a->ndims; i++)
        if (__builtin_mul_overflow(want, (uint64_t)a->dim[i], &want))
            want = UINT64_MAX / 2;
    want += (uint64_t)a->start;
    if (fstat(fileno(a->file), &st) < 0)
        return plait_errorf(err, "%s: %s", a->path, strerror(errno));
    if ((uint64_t)st.st_size == want)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: %s: its shape makes %llu bytes in all; the file "
                        "has %lld",
                        a->path,
                        (uint64_t)st.st_size < want ? "truncated" : "too long",
                        (unsigned long long)want, (long long)st.st_size);
}

static int read_header(struct array *a, struct plait_error *err)
{
    unsigned char head[12] = {0};
    size_t length, start = 10;
    char *text = NULL;
    int rc = -1;

    errno = EINVAL;
    if (fread(head, 1, 10, a->file) != 10 || memcmp(head, "\x93NUMPY", 6) != 0)
        return plait_errorf(err,
                            "%s: not an NPY file: it does not begin with "
                            "\\x93NUMPY",
                            a->path);
    length = head[8] | (size_t)head[9] << 8;
    if (head[6] > 1 && fread(head + 10, 1, 2, a->file) == 2) {
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
        start = 12;
    }
    if (length > LONGEST_HEADER || !(text = calloc(1, length + 1)) ||
        fread(text, 1, length, a->file) != length) {
        plait_errorf(err,
                     "%s: truncated, or its header of %zu bytes does not "
                     "describe images",
                     a->path, length);
        goto out;
    }
    a->start = (long)(start + length);
    rc = parse_header(a, text, err) < 0 ? -1 : check_size(a, err);
out:
    free(text);
    return rc;
}

static int open_array(struct array *a, const char *path,
                      struct plait_error *err)
{
    a->path = strdup(path);
    if (!a->path)
        return plait_errorf(err, "%s: out of memory", path);
    a->file = fopen(path, "re");
    if (!a->file)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    return read_header(a, err);
}

/* -- the numbers ----------------------------------------------------------- */

static double number(const struct array *a, const unsigned char *p)
{
    uint64_t bits = 0;
    float single;
    double real;

    for (int i = a->size - 1; i >= 0; i--)
        bits = bits << 8 | p[i];
    if (a->kind == 'f' && a->size == 4) {
        uint32_t low = (uint32_t)bits;

        memcpy(&single, &low, sizeof(single));
        return single;
    }
    if (a->kind == 'f') {
        memcpy(&real, &bits, sizeof(real));
        return real;
    }
    if (a->kind != 'i')
        return (double)bits;
    /* Sign-extend the number. */
    return (double)((int64_t)(bits << (64 - 8 * a->size)) >>
                    (64 - 8 * a->size));
}

static int read_numbers(struct array *a, unsigned char *to, size_t n,
                        struct plait_error *err)
{
    if (fread(to, (size_t)a->size, n, a->file) == n) {
        a->at++;
        return 0;
    }
    if (!ferror(a->file))
        errno = EINVAL;
    return plait_errorf(err, "%s: cannot read row %lld: %s", a->path,
                        (long long)a->at,
                        ferror(a->file) ? strerror(errno) : "truncated");
}

static int next_image(struct plait_image_source *s, struct plait_error *err)
{
    struct npy *n = (struct npy *)s;
    const struct array *a = &n->images;
    unsigned char label[8];

    if (a->at == a->dim[0])
        return 0;
    if (n->labels.file &&
        (read_numbers(&n->labels, label, 1, err) < 0 ||
         plait_image_label(s, n->labels.path, a->at, number(&n->labels, label),
                           err) < 0))
        return -1;
    if (read_numbers(&n->images, n->row, (size_t)s->width, err) < 0)
        return -1;
    for (int64_t i = 0; i < s->width; i++) {
        s->value[i] = (float)number(a, n->row + i * a->size);
        if (!isfinite(s->value[i])) {
            errno = ERANGE;
            return plait_errorf(err,
                                "%s: image %lld has a number that is not "
                                "finite",
                                s->path, (long long)a->at - 1);
        }
    }
    return 1;
}

static int rewind_array(struct array *a, struct plait_error *err)
{
    a->at = 0;
    if (!a->file || fseek(a->file, a->start, SEEK_SET) == 0)
        return 0;
    return plait_errorf(err, "%s: %s", a->path, strerror(errno));
}

static int rewind_files(struct plait_image_source *s, struct plait_error *err)
{
    struct npy *n = (struct npy *)s;

    return rewind_array(&n->images, err) < 0 ||
                   rewind_array(&n->labels, err) < 0
               ? -1
               : 0;
}

static void destroy(struct plait_image_source *s)
{
    struct npy *n = (struct npy *)s;

    close_array(&n->images);
    close_array(&n->labels);
    free(n->row);
    free(s->value);
    free(s->path);
    free(n);
}

/* -- opening --------------------------------------------------------------- */

static int set_shape(struct npy *n, struct plait_error *err)
{
    struct plait_image_source *s = &n->source;
    const struct array *a = &n->images;

    errno = EINVAL;
    if (a->ndims < 3)
        return plait_errorf(err,
                            "%s: an array of %d dimensions; images are "
                            "[N, H, W], [N, C, H, W] or [N, H, W, C]",
                            s->path, a->ndims);
    s->ndims = a->ndims - 1;
    s->width = 1;
    for (int i = 0; i < s->ndims; i++) {
        s->dim[i] = a->dim[i + 1];
        if (s->dim[i] < 1 || s->dim[i] > 65536 ||
            s->dim[i] > LARGEST_IMAGE / s->width)
            return plait_errorf(err, "%s: an image has a side of %lld pixels",
                                s->path, (long long)s->dim[i]);
        s->width *= s->dim[i];
    }
    s->bytes = a->kind == 'u' && a->size == 1;
    return 0;
}

static int open_labels(struct npy *n, const char *path, struct plait_error *err)
{
    struct array *a = &n->labels;

    if (open_array(a, path, err) < 0)
        return -1;
    errno = EINVAL;
    if (a->dim[0] == n->images.dim[0] &&
        (a->ndims == 1 || (a->ndims == 2 && a->dim[1] == 1)))
        return 0;
    return plait_errorf(err,
                        "%s: %lld labels in %d dimensions for the %lld images "
                        "of %s",
                        path, (long long)(a->ndims ? a->dim[0] : 1), a->ndims,
                        (long long)n->images.dim[0], n->source.path);
}

struct plait_image_source *plait_image_npy_create(const char *path,
                                                  const char *label_file,
                                                  struct plait_error *err)
{
    static const struct plait_image_reader reader = {next_image, rewind_files,
                                                     destroy};
    struct npy *n = calloc(1, sizeof(*n));
    struct plait_image_source *s = &n->source;

    if (!n) {
        plait_errorf(err, "%s: out of memory", path);
        return NULL;
    }
    s->reader = &reader;
    s->path = strdup(path);
    if (!s->path) {
        plait_errorf(err, "%s: out of memory", path);
        goto error;
    }
    if (open_array(&n->images, path, err) < 0 || set_shape(n, err) < 0 ||
        (label_file && open_labels(n, label_file, err) < 0))
        goto error;
    s->value = malloc((size_t)s->width * sizeof(*s->value));
    n->row = malloc((size_t)s->width * (size_t)n->images.size);
    if (s->value && n->row)
        return s;
    plait_errorf(err, "%s: out of memory", path);
error:
    plait_image_source_destroy(s);
    return NULL;
}
