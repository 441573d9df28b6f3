/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_IMAGE_SOURCE_H
#define PLAIT_RUNTIME_DATA_PREP_IMAGE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "topology/base/error.h"

/* The images that plait-prep reads, one after the other: rows of numbers in a
 * CSV file, compressed or not, or an NPY file of NumPy. */

enum plait_label_place {
    PLAIT_LABEL_NONE,
    PLAIT_LABEL_FIRST, /* column of a CSV file */
    PLAIT_LABEL_LAST,
    PLAIT_LABEL_FILE /* a separate NPY file */
};

struct plait_image_source {
    const struct plait_image_reader *reader;
    char *path;
    /* Dimensions of an image, where the file has them; 0: it does not. */
    int ndims;
    int64_t dim[3];
    bool bytes; /* its numbers are bytes */
    /* After plait_image_source_next(): */
    int64_t width; /* numbers of an image */
    float *value;  /* [width] */
    int label;     /* 0 .. 255 */
};

/* The functions for a kind of file. After a failed create, `destroy` frees what
 * was made. */
struct plait_image_reader {
    int (*next)(struct plait_image_source *s, struct plait_error *err);
    int (*rewind)(struct plait_image_source *s, struct plait_error *err);
    void (*destroy)(struct plait_image_source *s);
};

/* `label_file`: only with PLAIT_LABEL_FILE. NULL with errno: not such a file,
 * without such labels, or truncated. */
struct plait_image_source *
plait_image_source_create(const char *path, enum plait_label_place labels,
                          const char *label_file, struct plait_error *err);
void plait_image_source_destroy(struct plait_image_source *s);
/* The next image and its label: 1; 0: there is no more. */
int plait_image_source_next(struct plait_image_source *s,
                            struct plait_error *err);
/* Go back to the first image. */
int plait_image_source_rewind(struct plait_image_source *s,
                              struct plait_error *err);

/* For each kind of file: image_csv.c, image_npy.c. */
struct plait_image_source *plait_image_csv_create(const char *path,
                                                  enum plait_label_place labels,
                                                  struct plait_error *err);
struct plait_image_source *plait_image_npy_create(const char *path,
                                                  const char *label_file,
                                                  struct plait_error *err);
/* Set the label of image `index`, counted from 0: it must be whole, 0 .. 255,
 * as it becomes a byte of IDX. */
int plait_image_label(struct plait_image_source *s, const char *path,
                      int64_t index, double value, struct plait_error *err);

#endif
