/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/image_prep.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/data/data.h"
#include "runtime/data/prep/idx_writer.h"
#include "runtime/data/prep/prep_files.h"

/* The images are read twice: first to count them and find the range of their
 * pixels, then to write them, so that memory holds only one at a time. */

enum { TRAIN, VAL, SETS };

struct run {
    const struct plait_image_prep *prep;
    struct plait_image_source *source;
    struct plait_image_prep_result result;
    bool last; /* channels are last in the source */
    int64_t count, validated;
    float least, most; /* of all numbers */
    int64_t largest;   /* index of the image that has `most` */
    float white;
    unsigned char *pixels;
    struct plait_idx_writer *images[SETS], *labels[SETS];
};

char *plait_image_prep_path(const char *dir, bool val, int channels)
{
    char *path;

    return asprintf(&path, "%s/%s-images-idx%d-ubyte", dir,
                    val ? "t10k" : "train", channels > 1 ? 4 : 3) < 0
               ? NULL
               : path;
}

/* -- what the images are --------------------------------------------------- */

/* The shape of a CSV file's rows. */
static int shape_rows(struct run *r, struct plait_error *err)
{
    const int *given = r->prep->shape;
    int64_t width = r->source->width;
    int side = (int)lround(sqrt((double)width));

    errno = EINVAL;
    if (given[0]) {
        memcpy(r->result.shape, given, sizeof(r->result.shape));
        if ((int64_t)given[0] * given[1] * given[2] == width)
            return 0;
        return plait_errorf(err,
                            "%s: rows of %lld numbers; --shape %d,%d,%d makes "
                            "%lld",
                            r->source->path, (long long)width, given[0],
                            given[1], given[2],
                            (long long)given[0] * given[1] * given[2]);
    }
    r->result.shape[0] = 1;
    r->result.shape[1] = r->result.shape[2] = side;
    if ((int64_t)side * side == width)
        return 0;
    return plait_errorf(err,
                        "%s: rows of %lld numbers are not square images of "
                        "one channel; give --shape C,H,W (and --labels first "
                        "or last if one of the numbers is a label)",
                        r->source->path, (long long)width);
}

static bool may_be_channels(int64_t n)
{
    return n == 1 || n == 3 || n == 4;
}

/* The shape of an array's images. */
static int shape_array(struct run *r, struct plait_error *err)
{
    const int64_t *dim = r->source->dim;
    int *shape = r->result.shape;
    bool first = may_be_channels(dim[0]), last = may_be_channels(dim[2]);

    errno = EINVAL;
    if (r->prep->shape[0])
        return plait_errorf(err,
                            "%s: --shape is for CSV files; this file has its "
                            "shape in it",
                            r->source->path);
    if (r->source->ndims == 2) {
        shape[0] = 1;
        shape[1] = (int)dim[0];
        shape[2] = (int)dim[1];
        return 0;
    }
    if (r->prep->channels == PLAIT_CHANNELS_GUESSED && first == last)
        return plait_errorf(err,
                            "%s: images of %lld x %lld x %lld: give "
                            "--channels first or last to say which side "
                            "counts the channels",
                            r->source->path, (long long)dim[0],
                            (long long)dim[1], (long long)dim[2]);
    r->last = r->prep->channels == PLAIT_CHANNELS_GUESSED
                  ? last
                  : r->prep->channels == PLAIT_CHANNELS_LAST;
    shape[0] = (int)dim[r->last ? 2 : 0];
    shape[1] = (int)dim[r->last ? 0 : 1];
    shape[2] = (int)dim[r->last ? 1 : 2];
    return 0;
}

/* Read all images once: their number, their labels, the range of their
 * pixels. */
static int survey(struct run *r, struct plait_error *err)
{
    struct plait_image_source *s = r->source;
    int rc;

    while ((rc = plait_image_source_next(s, err)) == 1) {
        for (int64_t i = 0; i < s->width; i++) {
            if (s->value[i] > r->most) {
                r->most = s->value[i];
                r->largest = r->count;
            }
            if (s->value[i] < r->least)
                r->least = s->value[i];
        }
        if (s->label >= r->result.classes)
            r->result.classes = s->label + 1;
        r->count++;
    }
    if (rc < 0)
        return -1;
    errno = EINVAL;
    if (r->count < 1 || r->count > INT32_MAX)
        return plait_errorf(err, "%s: %s", s->path,
                            r->count ? "more than 2^31 images"
                                     : "no image in it");
    return s->ndims ? shape_array(r, err) : shape_rows(r, err);
}

static int choose_white(struct run *r, struct plait_error *err)
{
    r->white = (float)r->prep->white;
    if (r->white == 0)
        r->white = r->source->bytes || r->most > 1 ? 255 : 1;
    if (r->least >= 0 && r->most <= r->white)
        return 0;
    errno = ERANGE;
    if (r->least < 0)
        return plait_errorf(err, "%s: a pixel of %g; pixels are 0 or more",
                            r->source->path, (double)r->least);
    return plait_errorf(err,
                        "%s: a pixel of %g in image %lld; pixels are 0 to %g "
                        "(--white sets the largest)",
                        r->source->path, (double)r->most, (long long)r->largest,
                        (double)r->white);
}

static int count_validation(struct run *r, struct plait_error *err)
{
    r->validated = (int64_t)llround((double)r->count * r->prep->share);
    r->result.val = r->validated;
    r->result.train = r->count - r->validated;
    if (r->result.train > 0)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: --val %g of %lld images leaves none to train "
                        "on",
                        r->source->path, r->prep->share, (long long)r->count);
}

/* -- writing --------------------------------------------------------------- */

/* The path of the labels' file: as that of the images, with "labels" for
 * "images", and idx1. */
static char *label_path(const char *dir, bool val)
{
    char *path;

    return asprintf(&path, "%s/%s-labels-idx1-ubyte", dir,
                    val ? "t10k" : "train") < 0
               ? NULL
               : path;
}

static int open_set(struct run *r, int set, struct plait_error *err)
{
    const char *dir = r->prep->dir;
    const int *shape = r->result.shape;
    int64_t n = set == VAL ? r->result.val : r->result.train;
    int64_t plain[3] = {n, shape[1], shape[2]};
    int64_t channels[4] = {n, shape[0], shape[1], shape[2]};
    char *images = plait_image_prep_path(dir, set == VAL, shape[0]);
    char *labels = label_path(dir, set == VAL);

    if (!images || !labels) {
        plait_errorf(err, "%s: out of memory", dir);
        goto out;
    }
    r->images[set] = shape[0] > 1
                         ? plait_idx_writer_create(images, 4, channels, err)
                         : plait_idx_writer_create(images, 3, plain, err);
    if (r->images[set] && r->prep->labels != PLAIT_LABEL_NONE)
        r->labels[set] = plait_idx_writer_create(labels, 1, plain, err);
out:
    free(images);
    free(labels);
    return r->images[set] &&
                   (r->labels[set] || r->prep->labels == PLAIT_LABEL_NONE)
               ? 0
               : -1;
}

/* The source's image as bytes, channels first. */
static void make_bytes(struct run *r)
{
    const int *shape = r->result.shape;
    int64_t places = (int64_t)shape[1] * shape[2], C = shape[0];
    float scale = 255 / r->white;

    for (int64_t c = 0; c < C; c++)
        for (int64_t i = 0; i < places; i++) {
            float v = r->source->value[r->last ? i * C + c : c * places + i];

            r->pixels[c * places + i] = (unsigned char)lrintf(v * scale);
        }
}

/* Whether image i is for validation: chosen by a permutation from the seed, or
 * the last ones. */
static bool is_validated(const struct run *r, int64_t i)
{
    if (!r->prep->shuffled)
        return i >= r->result.train;
    return plait_sample_index(r->prep->seed, r->count, i) < r->validated;
}

static int write_images(struct run *r, struct plait_error *err)
{
    struct plait_image_source *s = r->source;
    size_t width = (size_t)s->width;
    int rc;

    r->pixels = malloc(width);
    if (!r->pixels)
        return plait_errorf(err, "%s: out of memory", s->path);
    if (plait_image_source_rewind(s, err) < 0)
        return -1;
    for (int64_t i = 0; (rc = plait_image_source_next(s, err)) == 1; i++) {
        int set = i < r->count && is_validated(r, i) ? VAL : TRAIN;
        unsigned char label = (unsigned char)s->label;

        if ((size_t)s->width != width) {
            errno = ESTALE;
            return plait_errorf(err, "%s: it changed while it was read",
                                s->path);
        }
        make_bytes(r);
        if (plait_idx_writer_add(r->images[set], r->pixels, width, err) < 0 ||
            (r->labels[set] &&
             plait_idx_writer_add(r->labels[set], &label, 1, err) < 0))
            return -1;
    }
    return rc;
}

/* Remove files of an earlier run with another shape or share, which would be
 * taken for a part of this one, and its labels, which would be taken for those
 * of the new images if this run ended between the two. */
static void remove_others(const struct run *r)
{
    char *path[2] = {NULL};

    for (int set = 0; set < SETS; set++) {
        for (int i = 0; i < 2; i++) {
            path[i] = plait_image_prep_path(r->prep->dir, set == VAL, 1 + i);
            if (path[i] && (!r->images[set] || i != (r->result.shape[0] > 1)))
                unlink(path[i]);
            free(path[i]);
        }
        path[0] = label_path(r->prep->dir, set == VAL);
        if (path[0])
            unlink(path[0]);
        free(path[0]);
    }
}

/* No file gets its final name before all are complete. */
static int finish_files(struct run *r, struct plait_error *err)
{
    struct plait_idx_writer *all[2 * SETS] = {
        r->images[TRAIN], r->labels[TRAIN], r->images[VAL], r->labels[VAL]};

    for (int i = 0; i < 2 * SETS; i++)
        if (all[i] && plait_idx_writer_sync(all[i], err) < 0)
            return -1;
    remove_others(r);
    for (int i = 0; i < 2 * SETS; i++)
        if (all[i] && plait_idx_writer_finish(all[i], err) < 0)
            return -1;
    return plait_prep_sync(r->prep->dir, err);
}

static int prepare(struct run *r, struct plait_error *err)
{
    const struct plait_image_prep *p = r->prep;

    r->source =
        plait_image_source_create(p->path, p->labels, p->label_file, err);
    if (!r->source || survey(r, err) < 0 || choose_white(r, err) < 0 ||
        count_validation(r, err) < 0 || plait_prep_make_dir(p->dir, err) < 0 ||
        open_set(r, TRAIN, err) < 0 ||
        (r->validated > 0 && open_set(r, VAL, err) < 0) ||
        write_images(r, err) < 0)
        return -1;
    return finish_files(r, err);
}

int plait_image_prep_run(const struct plait_image_prep *prep,
                         struct plait_image_prep_result *result,
                         struct plait_error *err)
{
    struct run r = {.prep = prep, .least = INFINITY, .most = -INFINITY};
    int rc = prepare(&r, err), saved = errno;

    for (int i = 0; i < SETS; i++) {
        plait_idx_writer_destroy(r.images[i]);
        plait_idx_writer_destroy(r.labels[i]);
    }
    free(r.pixels);
    plait_image_source_destroy(r.source);
    if (rc == 0)
        *result = r.result;
    errno = saved;
    return rc;
}
