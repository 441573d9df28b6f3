/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_IMAGE_PREP_H
#define PLAIT_RUNTIME_DATA_PREP_IMAGE_PREP_H

#include "runtime/data/prep/image_source.h"

/* plait-prep --images: writes images and labels as IDX files in a folder. */

enum plait_channel_place {
    PLAIT_CHANNELS_GUESSED, /* the dimension that is 1, 3 or 4 */
    PLAIT_CHANNELS_FIRST,
    PLAIT_CHANNELS_LAST
};

struct plait_image_prep {
    const char *path, *dir;
    enum plait_label_place labels;
    const char *label_file;
    int shape[3]; /* of a CSV file's rows: C, H, W; 0: square, one channel */
    enum plait_channel_place channels; /* of a 4-D array */
    double white;  /* the number that becomes 255; 0: 1 if there is none
                      above it, else 255 */
    double share;  /* of the images, for validation */
    bool shuffled; /* chosen by `seed`, else the last ones */
    uint64_t seed;
};

struct plait_image_prep_result {
    int64_t train, val; /* images */
    int classes;        /* the largest label plus one */
    int shape[3];
};

/* The path of a set's images, which the caller frees; channels: of an image.
 * NULL with ENOMEM. */
char *plait_image_prep_path(const char *dir, bool val, int channels);

int plait_image_prep_run(const struct plait_image_prep *prep,
                         struct plait_image_prep_result *result,
                         struct plait_error *err);

#endif
