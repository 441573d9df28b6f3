/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/checkpoint/hf_files.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/dtype.h"
#include "runtime/checkpoint/safetensors.h"

#define ONE_FILE "model.safetensors"
#define INDEX ONE_FILE ".index.json"

/* The largest size or offset in a file. */
#define NUMBER_MOST ((json_int_t)1 << 50)

/* How much plait_hf_files_compare() reads at a time. */
#define CHUNK ((uint64_t)1 << 20) /* elements */

/* -- which files ---------------------------------------------------------- */

static int add_name(struct plait_hf_files *f, const char *name,
                    struct plait_error *err)
{
    char **more;

    for (int i = 0; i < f->nfiles; i++)
        if (!strcmp(f->names[i], name))
            return 0;
    more = realloc(f->names, (f->nfiles + 1) * sizeof(*more));
    if (more)
        f->names = more;
    if (!more || !(more[f->nfiles] = strdup(name)))
        return plait_errorf(err, "%s: out of memory", f->dir);
    f->nfiles++;
    return 0;
}

static int read_index(struct plait_hf_files *f, const char *path,
                      struct plait_error *err)
{
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why), *value;
    json_t *map = json_object_get(root, "weight_map");
    const char *key, *name;
    int rc = 0;

    if (!root)
        rc = plait_errorf(err, "%s: line %d: %s", path, why.line, why.text);
    else if (json_object_size(map) == 0)
        rc = plait_errorf(err,
                          "%s: it has no weight_map, which names the file of "
                          "each tensor",
                          path);
    json_object_foreach(map, key, value)
    {
        name = json_string_value(value);
        if (rc == 0 && (!name || !*name || strchr(name, '/')))
            rc = plait_errorf(err,
                              "%s: no file of this directory has tensor "
                              "%.100s",
                              path, key);
        if (rc == 0)
            rc = add_name(f, name, err);
    }
    json_decref(root);
    if (rc < 0)
        errno = EINVAL;
    return rc;
}

static bool has_file(const char *dir, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static int list_files(struct plait_hf_files *f, struct plait_error *err)
{
    char path[4096];

    if (has_file(f->dir, ONE_FILE, path, sizeof(path)))
        return add_name(f, ONE_FILE, err);
    if (has_file(f->dir, INDEX, path, sizeof(path)))
        return read_index(f, path, err);
    errno = ENOENT;
    if (has_file(f->dir, "pytorch_model.bin", path, sizeof(path)) ||
        has_file(f->dir, "pytorch_model.bin.index.json", path, sizeof(path)))
        return plait_errorf(err,
                            "%s: its weights are a PyTorch pickle, which can "
                            "run code; save them as " ONE_FILE,
                            path);
    return plait_errorf(err, "%s: neither " ONE_FILE " nor " INDEX " is there",
                        f->dir);
}

/* -- what is in them ------------------------------------------------------ */

static int get_number(const json_t *list, size_t i, uint64_t *to)
{
    const json_t *value = json_array_get(list, i);

    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > NUMBER_MOST)
        return -1;
    *to = (uint64_t)json_integer_value(value);
    return 0;
}

static size_t width_of(const char *dtype)
{
    if (!strcmp(dtype, "F32"))
        return 4;
    return !strcmp(dtype, "BF16") || !strcmp(dtype, "F16") ? 2 : 0;
}

/* The size is checked only for types that can be read. */
static int parse_tensor(struct plait_hf_stored *t, const json_t *entry,
                        uint64_t data)
{
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *span = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    uint64_t begin, end, n = 1, size;

    if (!dtype || strlen(dtype) >= sizeof(t->dtype) || !json_is_array(shape) ||
        json_array_size(span) != 2 || get_number(span, 0, &begin) < 0 ||
        get_number(span, 1, &end) < 0 || begin > end || end > data)
        return -1;
    snprintf(t->dtype, sizeof(t->dtype), "%s", dtype);
    t->ndim = (int)json_array_size(shape);
    for (int i = 0; i < t->ndim; i++) {
        if (get_number(shape, i, &size) < 0 ||
            __builtin_mul_overflow(n, size, &n) || n > NUMBER_MOST)
            return -1;
        if (i < 3)
            t->shape[i] = size;
    }
    t->offset = begin;
    return width_of(dtype) && end - begin != n * width_of(dtype) ? -1 : 0;
}

/* A file that is read: its head, where its data begin, and its size. */
struct part {
    const char *path;
    json_t *head;
    size_t data, size;
};

static int add_tensors(struct plait_hf_files *f, int file,
                       const struct part *part, struct plait_error *err)
{
    struct plait_hf_stored *more =
        realloc(f->tensors, (f->ntensors + json_object_size(part->head) + 1) *
                                sizeof(*more));
    const char *key;
    json_t *entry;

    if (!more)
        return plait_errorf(err, "%s: out of memory", part->path);
    f->tensors = more;
    json_object_foreach(part->head, key, entry)
    {
        struct plait_hf_stored *t = &f->tensors[f->ntensors];

        if (!strcmp(key, "__metadata__"))
            continue;
        *t = (struct plait_hf_stored){.file = file};
        errno = EINVAL;
        if (strlen(key) >= sizeof(t->name) ||
            parse_tensor(t, entry, part->size - part->data) < 0)
            return plait_errorf(err,
                                "%s: corrupt: the type, shape or offset of "
                                "tensor %.100s does not match its data",
                                part->path, key);
        snprintf(t->name, sizeof(t->name), "%s", key);
        t->offset += part->data;
        f->ntensors++;
    }
    return 0;
}

static int read_head(struct plait_hf_files *f, int file, const char *path,
                     struct plait_error *err)
{
    struct part part = {.path = path};
    struct stat st;
    void *map;
    int rc = -1;

    f->fds[file] = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fds[file] < 0 || fstat(f->fds[file], &st) < 0)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    errno = EINVAL;
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return plait_errorf(err, "%s: %s", path,
                            S_ISREG(st.st_mode) ? "an empty file"
                                                : "not a regular file");
    part.size = (size_t)st.st_size;
    map = mmap(NULL, part.size, PROT_READ, MAP_PRIVATE, f->fds[file], 0);
    if (map == MAP_FAILED)
        return plait_errorf(err, "%s: mmap: %s", path, strerror(errno));
    part.head = plait_safetensors_head(path, map, part.size, &part.data, err);
    if (part.head)
        rc = add_tensors(f, file, &part, err);
    json_decref(part.head);
    munmap(map, part.size);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct plait_hf_stored *)a)->name,
                  ((const struct plait_hf_stored *)b)->name);
}

int plait_hf_files_open(struct plait_hf_files *f, const char *dir,
                        struct plait_error *err)
{
    char path[4096];

    *f = (struct plait_hf_files){.dir = dir};
    if (list_files(f, err) < 0)
        return -1;
    f->fds = malloc(f->nfiles * sizeof(*f->fds));
    if (!f->fds)
        return plait_errorf(err, "%s: out of memory", dir);
    for (int i = 0; i < f->nfiles; i++)
        f->fds[i] = -1;
    for (int i = 0; i < f->nfiles; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, f->names[i]);
        if (read_head(f, i, path, err) < 0)
            return -1;
    }
    if (f->ntensors > 0)
        qsort(f->tensors, f->ntensors, sizeof(*f->tensors), by_name);
    for (int i = 1; i < f->ntensors; i++) {
        errno = EINVAL;
        if (!strcmp(f->tensors[i - 1].name, f->tensors[i].name))
            return plait_errorf(err, "%s: tensor %s is in two files, %s and %s",
                                dir, f->tensors[i].name,
                                f->names[f->tensors[i - 1].file],
                                f->names[f->tensors[i].file]);
    }
    return 0;
}

void plait_hf_files_close(struct plait_hf_files *f)
{
    int saved = errno;

    for (int i = 0; i < f->nfiles; i++) {
        if (f->fds && f->fds[i] >= 0)
            close(f->fds[i]);
        free(f->names[i]);
    }
    free(f->names);
    free(f->fds);
    free(f->tensors);
    *f = (struct plait_hf_files){0};
    errno = saved;
}

const struct plait_hf_stored *
plait_hf_files_find(const struct plait_hf_files *f, const char *name)
{
    struct plait_hf_stored key;

    snprintf(key.name, sizeof(key.name), "%s", name);
    if (f->ntensors == 0)
        return NULL;
    return bsearch(&key, f->tensors, f->ntensors, sizeof(key), by_name);
}

int plait_hf_files_read(const struct plait_hf_files *f, int file,
                        uint64_t offset, void *to, size_t size,
                        struct plait_error *err)
{
    char *at = to;
    ssize_t n;

    while (size > 0) {
        n = pread(f->fds[file], at, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = EIO;
            return plait_errorf(err, "%s/%s: cannot read it: %s", f->dir,
                                f->names[file],
                                n < 0 ? strerror(errno) : "it became shorter");
        }
        at += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

/* -- numbers -------------------------------------------------------------- */

/* 16-bit numbers are read into the second half of `out` and widened from the
 * front. */
int plait_hf_files_read_run(const struct plait_hf_files *f,
                            const struct plait_hf_stored *s, uint64_t first,
                            uint64_t n, float *out, struct plait_error *err)
{
    bool wide = !strcmp(s->dtype, "F32"), brain = !strcmp(s->dtype, "BF16");
    size_t size = wide ? 4 : 2;
    const char *half = (const char *)out + 2 * n;
    uint16_t bits;

    if (plait_hf_files_read(f, s->file, s->offset + first * size,
                            wide ? (char *)out : (char *)out + 2 * n, n * size,
                            err) < 0)
        return -1;
    for (uint64_t i = 0; i < n && !wide; i++) {
        memcpy(&bits, half + 2 * i, 2);
        out[i] = brain ? plait_f32_of_bf16(bits) : plait_f32_of_fp16(bits);
    }
    return 0;
}

bool plait_hf_files_has_type(const struct plait_hf_stored *s)
{
    return !strcmp(s->dtype, "F32") || !strcmp(s->dtype, "BF16") ||
           !strcmp(s->dtype, "F16");
}

const struct plait_hf_stored *
plait_hf_files_find_any(const struct plait_hf_files *f, const char *name)
{
    const struct plait_hf_stored *s = plait_hf_files_find(f, name);
    const char *dot = strchr(name, '.');
    char longer[128];

    if (!s && dot)
        s = plait_hf_files_find(f, dot + 1);
    if (s)
        return s;
    snprintf(longer, sizeof(longer), "language_model.%s", name);
    return plait_hf_files_find(f, longer);
}

int plait_hf_files_compare(const struct plait_hf_files *f,
                           const struct plait_hf_stored *a,
                           const struct plait_hf_stored *b,
                           struct plait_error *err)
{
    uint64_t size = a->shape[0] * a->shape[1], n;
    float *x, *y;
    int rc = 0;

    if (a->ndim != 2 || b->ndim != 2 || a->shape[0] != b->shape[0] ||
        a->shape[1] != b->shape[1])
        return 1;
    if (!plait_hf_files_has_type(a) || !plait_hf_files_has_type(b))
        return 0;
    x = malloc(2 * CHUNK * sizeof(*x));
    if (!x)
        return plait_errorf(err, "%s: out of memory", f->dir);
    y = x + CHUNK;
    for (uint64_t at = 0; at < size && rc == 0; at += n) {
        n = size - at < CHUNK ? size - at : CHUNK;
        if (plait_hf_files_read_run(f, a, at, n, x, err) < 0 ||
            plait_hf_files_read_run(f, b, at, n, y, err) < 0)
            rc = -1;
        for (uint64_t i = 0; i < n && rc == 0; i++)
            rc = x[i] != y[i];
    }
    free(x);
    return rc;
}
