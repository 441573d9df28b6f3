/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/images.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CIFAR_SIDE 32
#define CIFAR_PIXELS (3 * CIFAR_SIDE * CIFAR_SIDE)

/* Bytes of labels before the image: the class, in CIFAR-100 after a coarse
 * one. */
static int cifar_labels(enum plait_data_format format)
{
    return format == PLAIT_DATA_CIFAR100 ? 2 : 1;
}

bool plait_images_guess(const char *path, const unsigned char *head, size_t n,
                        enum plait_data_format *format)
{
    static const enum plait_data_format cifar[] = {PLAIT_DATA_CIFAR10,
                                                   PLAIT_DATA_CIFAR100};
    struct stat st;

    if (n >= 4 && head[0] == 0 && head[1] == 0 && head[2] == PLAIT_IDX_BYTES &&
        (head[3] == 1 || head[3] == 3 || head[3] == 4)) {
        *format = PLAIT_DATA_IDX;
        return true;
    }
    if (stat(path, &st) < 0 || st.st_size == 0)
        return false;
    for (int i = 0; i < 2; i++)
        if (st.st_size % (CIFAR_PIXELS + cifar_labels(cifar[i])) == 0) {
            *format = cifar[i];
            return true;
        }
    return false;
}

/* -- IDX ------------------------------------------------------------------- */

static int64_t dimension(const struct plait_segment *s, int i)
{
    uint32_t value;

    memcpy(&value, (const char *)s->map + 4 + 4 * i, sizeof(value));
    return be32toh(value);
}

/* Read the header, and check that the file is as long as it says. */
static int read_header(struct plait_segment *s, int *ndims,
                       struct plait_error *err)
{
    const unsigned char *head;
    size_t want = 1;

    if (plait_segment_map(s, 8, err) < 0)
        return -1;
    head = s->map;
    *ndims = head[3];
    errno = EINVAL;
    if (head[0] || head[1] || head[2] != PLAIT_IDX_BYTES || *ndims < 1 ||
        *ndims > 4 || s->size < 4 + 4 * (size_t)*ndims)
        return plait_errorf(err,
                            "%s: not an IDX file of bytes: it begins with "
                            "%02x %02x %02x %02x, not 00 00 08 and 01, 03 or "
                            "04",
                            s->path, head[0], head[1], head[2], head[3]);
    for (int i = 0; i < *ndims; i++)
        if (__builtin_mul_overflow(want, (size_t)dimension(s, i), &want))
            want = SIZE_MAX / 2;
    want += 4 + 4 * (size_t)*ndims;
    if (s->size == want)
        return 0;
    return plait_errorf(err,
                        "%s: %s: the header says %lld images or labels, %zu "
                        "bytes in all; the file has %zu",
                        s->path, s->size < want ? "truncated" : "too long",
                        (long long)dimension(s, 0), want, s->size);
}

int plait_images_open_idx(struct plait_segment *s, struct plait_error *err)
{
    int *shape = s->images.shape, ndims;

    if (read_header(s, &ndims, err) < 0)
        return -1;
    if (ndims < 3)
        return plait_errorf(err,
                            "%s: it has %d dimensions, as files of labels "
                            "have; name the file of the images instead",
                            s->path, ndims);
    shape[0] = 1;
    for (int i = 1; i < ndims; i++) {
        if (dimension(s, i) < 1 || dimension(s, i) > 65536)
            return plait_errorf(err, "%s: an image has a side of %lld pixels",
                                s->path, (long long)dimension(s, i));
        shape[i + 3 - ndims] = (int)dimension(s, i);
    }
    s->type = PLAIT_TOKEN_U8;
    s->count = dimension(s, 0);
    s->offset = 4 + 4 * (size_t)ndims;
    s->images.stride = (size_t)shape[0] * shape[1] * shape[2];
    s->images.beside = true;
    return 0;
}

/* Replace the last `from` in the file's name by `to`, which is as long. */
static bool replace_last(char *path, const char *from, const char *to)
{
    char *slash = strrchr(path, '/'), *next = slash ? slash : path;
    char *at = NULL;

    while ((next = strstr(next, from)))
        at = next++;
    if (at)
        memcpy(at, to, strlen(to));
    return at;
}

int plait_images_open_labels(struct plait_segment *labels,
                             const struct plait_segment *s,
                             struct plait_error *err)
{
    char *path = strdup(s->path);
    int ndims;

    memset(labels, 0, sizeof(*labels));
    labels->fd = -1;
    labels->path = path;
    if (!path)
        return plait_errorf(err, "%s: out of memory", s->path);
    errno = EINVAL;
    if (!replace_last(path, "images", "labels"))
        return plait_errorf(err,
                            "%s: the name of an IDX file of images must "
                            "contain \"images\", that of its labels \"labels\"",
                            s->path);
    if (!replace_last(path, "idx3", "idx1"))
        replace_last(path, "idx4", "idx1");
    if (read_header(labels, &ndims, err) < 0)
        return -1;
    if (ndims != 1 || dimension(labels, 0) != s->count)
        return plait_errorf(err,
                            "%s: %lld labels in %d dimensions for the %lld "
                            "images of %s",
                            path, (long long)dimension(labels, 0), ndims,
                            (long long)s->count, s->path);
    labels->type = PLAIT_TOKEN_U8;
    labels->count = s->count;
    labels->offset = 8;
    plait_segment_unmap(labels);
    plait_segment_advise(labels);
    return 0;
}

/* -- CIFAR ----------------------------------------------------------------- */

int plait_images_open_cifar(struct plait_segment *s,
                            enum plait_data_format format,
                            struct plait_error *err)
{
    int labels = cifar_labels(format);
    size_t stride = (size_t)labels + CIFAR_PIXELS;

    if (plait_segment_map(s, stride, err) < 0)
        return -1;
    errno = EINVAL;
    if (s->size % stride)
        return plait_errorf(err,
                            "%s: %zu bytes are not a whole number of CIFAR "
                            "images of %zu",
                            s->path, s->size, stride);
    s->type = PLAIT_TOKEN_U8;
    s->count = (int64_t)(s->size / stride);
    s->offset = (size_t)labels;
    s->images = (struct plait_images){.shape = {3, CIFAR_SIDE, CIFAR_SIDE},
                                      .stride = stride,
                                      .label = (size_t)labels - 1,
                                      .classes = labels == 1 ? 10 : 100};
    return 0;
}
