/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/data/tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

int plait_added_tokens_add(struct plait_added_tokens *set, int32_t id,
                           const char *text, size_t size, bool special,
                           bool normalized)
{
    struct plait_added_token *more, new = {id, special, normalized, NULL, size};
    size_t i;

    more = realloc(set->token, (set->count + 1) * sizeof(*more));
    if (!more)
        return -1;
    set->token = more;
    new.text = malloc(size + 1);
    if (!new.text)
        return -1;
    memcpy(new.text, text, size);
    new.text[size] = '\0';
    for (i = set->count++; i > 0 && more[i - 1].size < size; i--)
        more[i] = more[i - 1];
    more[i] = new;
    set->starts[normalized][(unsigned char)text[0]] = true;
    return 0;
}

void plait_added_tokens_clear(struct plait_added_tokens *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->token[i].text);
    free(set->token);
    memset(set, 0, sizeof(*set));
}

static const struct plait_added_token *
token_here(const struct plait_added_tokens *set, bool normalized,
           const char *text, size_t size)
{
    const struct plait_added_token *t = set->token, *end = t + set->count;

    for (; t < end; t++)
        if (t->normalized == normalized && t->size <= size &&
            t->text[0] == text[0] && !memcmp(t->text, text, t->size))
            return t;
    return NULL;
}

const struct plait_added_token *
plait_added_tokens_find(const struct plait_added_tokens *set, bool normalized,
                        const char *text, size_t size, size_t *at)
{
    const bool *starts = set->starts[normalized];
    const struct plait_added_token *t;

    for (size_t i = 0; i < size && set->count > 0; i++)
        if (starts[(unsigned char)text[i]] &&
            (t = token_here(set, normalized, text + i, size - i))) {
            *at = i;
            return t;
        }
    *at = size;
    return NULL;
}

bool plait_added_tokens_cut(const struct plait_added_tokens *set,
                            const char *text, size_t size, size_t at)
{
    const struct plait_added_token *t = set->token, *end = t + set->count;

    for (; t < end; t++)
        for (size_t i = 1; i < t->size && i <= at; i++)
            if (t->text[i] == text[at] && t->size <= size - at + i &&
                !memcmp(text + at - i, t->text, t->size))
                return true;
    return false;
}

const struct plait_added_token *
plait_added_tokens_named(const struct plait_added_tokens *set, const char *text)
{
    for (size_t i = 0; i < set->count; i++)
        if (!strcmp(set->token[i].text, text))
            return &set->token[i];
    return NULL;
}
