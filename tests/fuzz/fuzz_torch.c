/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "runtime/convert/torch_tensor.h"

/* Looks at every value that is a dict, and at the tensors in it. */
static void look_at(const struct plait_torch_file *file,
                    const struct plait_pickle_value *value)
{
    const struct plait_pickle_value *dict = plait_pickle_dict(value);
    struct plait_torch_tensor tensor;
    struct plait_error err;
    char last;

    for (size_t i = 0; dict && i < dict->n / 2 * 2; i += 2) {
        plait_pickle_is(dict->items[i], "torch float32");
        if (plait_torch_tensor_of(file, dict->items[i + 1], &tensor, &err) < 0)
            continue;
        /* The last byte that the tensor claims must be in the file. */
        tensor.offset +=
            tensor.shape[0] * tensor.shape[1] * plait_dtype_size(tensor.type);
        if (plait_torch_file_read(file, tensor.offset - 1, &last, 1, &err) < 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_pickle *pickle;
    struct plait_torch_file *file;
    struct plait_error err;
    char path[64];
    int fd;

    /* Also as a pickle alone, as most changes of a zip break the zip. */
    pickle = plait_pickle_parse("fuzz", data, size, &err);
    if (pickle) {
        plait_pickle_find(plait_pickle_root(pickle), "model");
        plait_pickle_destroy(pickle);
    }
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    file = plait_torch_file_open(path, &err);
    if (file) {
        look_at(file, plait_torch_file_root(file));
        look_at(file, plait_pickle_find(plait_torch_file_root(file), "model"));
    }
    plait_torch_file_close(file);
    close(fd);
    return 0;
}
