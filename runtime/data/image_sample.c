/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/dataset.h"

/* An image as the model sees it: channels last, normalised, and in training
 * shifted and flipped. */

int64_t plait_dataset_images(const struct plait_dataset *ds)
{
    return ds->images;
}

const int *plait_dataset_image_shape(const struct plait_dataset *ds)
{
    return ds->segments[0].images.shape;
}

/* SplitMix64's finaliser (Steele et al., OOPSLA 2014). */
static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

struct motion {
    int down, right; /* pixels */
    bool flipped;
};

/* Scale the low 32 bits of a random number to 0 .. n - 1. */
static int scaled(uint64_t random, int n)
{
    return (int)((random & UINT32_MAX) * (uint64_t)n >> 32);
}

/* The shift and flip of an image in an epoch. */
static struct motion choose_motion(const struct plait_image_form *form,
                                   int64_t index, int64_t epoch)
{
    uint64_t key =
        mix(mix(mix(form->seed) ^ (uint64_t)index) ^ (uint64_t)epoch);
    int places = 2 * form->shift + 1;

    return (struct motion){.down = scaled(key, places) - form->shift,
                           .right = scaled(key >> 32, places) - form->shift,
                           .flipped = form->flip && mix(key) & 1};
}

/* Pixels from outside of the image are black. */
static void copy_pixels(const struct plait_image_form *form, const int shape[3],
                        const unsigned char *from, struct motion m, float *to)
{
    float scale = 1 / (255 * form->std), offset = form->mean / form->std;
    int C = shape[0], H = shape[1], W = shape[2];

    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            int sy = y - m.down, sx = (m.flipped ? W - 1 - x : x) - m.right;
            bool inside = sy >= 0 && sy < H && sx >= 0 && sx < W;

            for (int c = 0; c < C; c++)
                *to++ =
                    (inside ? from[((size_t)c * H + sy) * W + sx] : 0) * scale -
                    offset;
        }
}

static const struct plait_segment *find_segment(const struct plait_dataset *ds,
                                                int64_t index)
{
    const struct plait_segment *s = ds->segments;

    while (index - s->first >= s->count)
        s += s->images.beside ? 2 : 1;
    return s;
}

static int read_label(const struct plait_segment *s, int64_t at, int32_t *label,
                      struct plait_error *err)
{
    unsigned char byte;
    int rc =
        s->images.beside
            ? plait_segment_read(s + 1, s[1].offset + (size_t)at, 1, &byte, err)
            : plait_segment_read(
                  s, s->images.label + (size_t)at * s->images.stride, 1, &byte,
                  err);

    if (rc == 0)
        *label = byte;
    return rc;
}

/* The pixels of image `at`, as the model sees them. */
static int read_pixels(const struct plait_segment *s, int64_t at,
                       const struct plait_image_form *form,
                       struct motion motion, float *pixels,
                       struct plait_error *err)
{
    const int *shape = s->images.shape;
    size_t n = (size_t)shape[0] * shape[1] * shape[2];
    unsigned char *raw = malloc(n);
    int rc;

    if (!raw)
        return plait_errorf(err, "%s: out of memory", s->path);
    rc = plait_segment_read(s, s->offset + (size_t)at * s->images.stride, n,
                            raw, err);
    if (rc == 0)
        copy_pixels(form, shape, raw, motion, pixels);
    free(raw);
    return rc;
}

int plait_dataset_read_image(const struct plait_dataset *ds,
                             const struct plait_image_form *form, int64_t index,
                             int64_t epoch, float *pixels, int32_t *label,
                             struct plait_error *err)
{
    const struct plait_segment *s = find_segment(ds, index);
    int64_t at = index - s->first;

    if (read_label(s, at, label, err) < 0)
        return -1;
    if (form->classes > 1 && *label >= form->classes) {
        errno = ERANGE;
        return plait_errorf(err,
                            "%s: image %lld has label %d, but model.classes "
                            "is %d",
                            s->path, (long long)at, *label, form->classes);
    }
    return read_pixels(s, at, form, choose_motion(form, index, epoch), pixels,
                       err);
}

void plait_dataset_expect_image(const struct plait_dataset *ds, int64_t index)
{
    const struct plait_segment *s = find_segment(ds, index);

    plait_segment_expect(s, (index - s->first) * (int64_t)s->images.stride,
                         (int64_t)s->images.stride);
}
