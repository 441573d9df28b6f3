/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz.h"
#include "runtime/data/data.h"
#include "temp_path.h"

/* Datasets are mapped, so they must be files. A Megatron pair is one corpus
 * file: a byte n, then 2 n bytes of index, then the tokens. Inputs of odd
 * length are tried as such a pair, others as the other formats. */

static char dir[TEMP_PATH];

static void clean_up(void)
{
    char path[sizeof(dir) + 8];

    snprintf(path, sizeof(path), "%s/m.bin", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/m.idx", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/t.bin", dir);
    unlink(path);
    rmdir(dir);
}

static const char *put(const char *name, const uint8_t *data, size_t size)
{
    static char path[sizeof(dir) + 8];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "w");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    return path;
}

static void try(const char *path, enum plait_data_format format)
{
    struct plait_error err;
    struct plait_dataset *ds = plait_dataset_create(path, format, &err);
    const struct plait_sequence_form form = {4, 300, -1};
    int32_t input[4], target[4];

    if (!ds)
        return;
    if (plait_dataset_samples(ds, 4) > 0) {
        plait_dataset_read(ds, &form, 0, input, target, &err);
        plait_dataset_read(ds, &form, plait_dataset_samples(ds, 4) - 1, input,
                           target, &err);
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
    size_t index;

    if (!dir[0])
        make_dir();
    if (size % 2 == 0) {
        path = put("t.bin", data, size);
        try(path, PLAIT_DATA_AUTO);
        try(path, PLAIT_DATA_LLMC);
    } else {
        index = data[0] * 2u < size - 1 ? data[0] * 2u : size - 1;
        put("m.idx", data + 1, index);
        try(put("m.bin", data + 1 + index, size - 1 - index),
            PLAIT_DATA_MEGATRON);
    }
    return 0;
}
