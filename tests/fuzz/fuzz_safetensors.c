/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_tensor_slice want = {"a", {4, 6}, {1, 0}, {3, 6}, 2, 14};
    struct plait_stored *stored;
    struct plait_error err;
    float buffer[14], *from;
    int n, i;

    if (plait_safetensors_parse("fuzz", data, size, &stored, &n, &err) < 0)
        return 0;
    for (i = 0; i < n; i++) {
        /* exactly as long as the header says, and aligned */
        size_t bytes = stored[i].slice.count * sizeof(float);

        from = malloc(bytes + 1);
        if (!from)
            abort();
        memcpy(from, data + stored[i].offset, bytes);
        plait_tensor_slice_copy(&want, buffer, &stored[i].slice, from);
        free(from);
    }
    free(stored);
    return 0;
}
