/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_piece want = {"a", {4, 6}, {1, 0}, {3, 6}, 2, 14};
    struct plait_stored *stored;
    struct plait_error err;
    float buffer[14], *from;
    int n, i;

    if (plait_safetensors_parse("fuzz", data, size, &stored, &n, &err) < 0)
        return 0;
    for (i = 0; i < n; i++) {
        /* Aligned, and exactly as long as the head says. */
        size_t bytes = stored[i].piece.count * sizeof(float);

        from = malloc(bytes + 1);
        if (!from)
            abort();
        memcpy(from, data + stored[i].offset, bytes);
        plait_piece_copy(&want, buffer, &stored[i].piece, from);
        free(from);
    }
    free(stored);
    return 0;
}
