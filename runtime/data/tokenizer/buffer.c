/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/data/tokenizer/buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Double the room, so that adding piece by piece takes linear time. */
static void *grow(void *data, size_t used, size_t *room, size_t more,
                  size_t width)
{
    size_t want = used + more;

    if (want < *room * 2)
        want = *room * 2;
    if (want > SIZE_MAX / 2 / width) {
        errno = ENOMEM;
        return NULL;
    }
    data = realloc(data, want * width);
    if (data)
        *room = want;
    return data;
}

int plait_buffer_reserve(struct plait_buffer *b, size_t more)
{
    char *data = b->data;

    if (b->data && more <= b->room - b->size)
        return 0;
    data = grow(b->data, b->size, &b->room, more + 1, 1);
    if (!data)
        return -1;
    b->data = data;
    return 0;
}

int plait_buffer_add(struct plait_buffer *b, const void *data, size_t size)
{
    if (plait_buffer_reserve(b, size) < 0)
        return -1;
    if (size > 0)
        memcpy(b->data + b->size, data, size);
    b->size += size;
    return 0;
}

int plait_tokens_reserve(struct plait_tokens *t, size_t more)
{
    int32_t *id;

    if (t->id && more <= t->room - t->count)
        return 0;
    id = grow(t->id, t->count, &t->room, more + 1, sizeof(*id));
    if (!id)
        return -1;
    t->id = id;
    return 0;
}
