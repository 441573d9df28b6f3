/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "runtime/data/data.h"
#include "temp_path.h"

/* Image files are mapped, so they must be files. An input begins with the
 * number of bytes of labels, which follow; after them come the images. CIFAR's
 * files have thousands of bytes, more than an input: such a file is the bytes
 * after the first one, 3073 times, which is the size of that many images. */

static char dir[TEMP_PATH];

static void clean_up(void)
{
    static const char *const names[] = {"images", "labels", "cifar"};
    char path[sizeof(dir) + 8];

    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static const char *put(const char *name, const uint8_t *data, size_t size,
                       size_t times)
{
    static char path[sizeof(dir) + 8];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "w");
    if (!file)
        abort();
    for (size_t i = 0; i < times; i++)
        if (fwrite(data, 1, size, file) != size)
            abort();
    if (fclose(file) != 0)
        abort();
    return path;
}

static void try(const char *path, enum plait_data_format format)
{
    const struct plait_image_form form = {
        .classes = 10, .std = 1, .shift = 3, .flip = true, .seed = 1};
    struct plait_error err;
    struct plait_dataset *ds = plait_dataset_create(path, format, &err);
    const int *shape;
    float *pixels;
    int32_t label;

    if (!ds)
        return;
    if (plait_dataset_images(ds) > 0) {
        shape = plait_dataset_image_shape(ds);
        pixels =
            malloc((size_t)shape[0] * shape[1] * shape[2] * sizeof(*pixels));
        if (!pixels)
            abort();
        plait_dataset_read_image(ds, &form, 0, 0, pixels, &label, &err);
        plait_dataset_read_image(ds, &form, plait_dataset_images(ds) - 1, 1,
                                 pixels, &label, &err);
        free(pixels);
    }
    plait_dataset_destroy(ds);
}

static void make_dir(void)
{
    if (!mkdtemp(temp_path(dir, "fuzz")))
        abort();
    atexit(clean_up);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path;
    size_t labels;

    if (!dir[0])
        make_dir();
    if (size == 0)
        return 0;
    labels = data[0] < size - 1 ? data[0] : size - 1;
    put("labels", data + 1, labels, 1);
    path = put("images", data + 1 + labels, size - 1 - labels, 1);
    try(path, PLAIT_DATA_AUTO);
    try(path, PLAIT_DATA_IDX);
    if (size % 8 == 1) {
        path = put("cifar", data + 1, size - 1, 3073);
        try(path, PLAIT_DATA_AUTO);
        try(path, PLAIT_DATA_CIFAR100);
    }
    return 0;
}
