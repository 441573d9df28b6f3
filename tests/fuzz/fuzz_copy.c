/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/checkpoint/copy_image.h"
#include "runtime/checkpoint/safetensors.h"

#define FIELDS offsetof(struct plait_copy_head, info)

static void read_image(const char *image, size_t size)
{
    struct plait_copy_head head;
    struct plait_stored *stored;
    struct plait_error err;
    int n;

    if (plait_copy_image_check(image, size, &head, &err) < 0)
        return;
    if (head.bytes != size || head.origin < 0 || head.origin >= head.ranks)
        __builtin_trap();
    if (plait_safetensors_parse("copy",
                                (const unsigned char *)image + PLAIT_COPY_HEAD,
                                size - PLAIT_COPY_HEAD, &stored, &n, &err) == 0)
        free(stored);
}

/* The state that a rank sends its partner: the input as it is; and with the
 * bytes as the head's fields and the data after it, with a correct hash. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t rest = size > FIELDS ? size - FIELDS : 0;
    char *image = malloc(size + 1);
    struct plait_copy_head head;

    if (image) {
        memcpy(image, data, size);
        read_image(image, size);
    }
    free(image);
    image = calloc(1, PLAIT_COPY_HEAD + rest);
    if (!image || rest == 0) {
        free(image);
        return 0;
    }
    memcpy(image, data, FIELDS);
    memcpy(image + PLAIT_COPY_HEAD, data + FIELDS, rest);
    memcpy(&head, image, sizeof(head));
    if (head.table <= rest) {
        head.hash = plait_copy_image_hash(image);
        memcpy(image, &head, sizeof(head));
    }
    read_image(image, PLAIT_COPY_HEAD + rest);
    free(image);
    return 0;
}
