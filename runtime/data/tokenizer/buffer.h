/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_BUFFER_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_BUFFER_H

#include <stddef.h>
#include <stdint.h>

/* Growing arrays of bytes and of tokens. All zero is an empty one; `data` and
 * `id` are freed with free(). */
struct plait_buffer {
    char *data;
    size_t size, room;
};

struct plait_tokens {
    int32_t *id;
    size_t count, room;
};

/* Make room for `more` elements; -1 with ENOMEM, nothing changed. */
int plait_buffer_reserve(struct plait_buffer *b, size_t more);
int plait_buffer_add(struct plait_buffer *b, const void *data, size_t size);
int plait_tokens_reserve(struct plait_tokens *t, size_t more);

#endif
