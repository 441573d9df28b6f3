/* SPDX-License-Identifier: Apache-2.0 */
/* Which classes a pickle names. */
#include "runtime/pickle/pickle_stack.h"

static bool is_known(const value_t *v, const char *const *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (plait_pickle_is(v, known[i]))
            return true;
    return false;
}

const struct plait_pickle_value *
plait_pickle_unknown_name(const struct plait_pickle *pickle,
                          const char *const *known, size_t n)
{
    for (const struct plait_pickle_chunk *c = pickle->chunks; c; c = c->next)
        for (int i = 0; i < c->n; i++)
            if (c->values[i].kind == PLAIT_PICKLE_NAME &&
                !is_known(&c->values[i], known, n))
                return &c->values[i];
    return NULL;
}

/* Appends to shown [at]; returns where that ends. */
static size_t show_text(const value_t *v, size_t at, char shown[128])
{
    bool text = v->kind == PLAIT_PICKLE_TEXT || v->kind == PLAIT_PICKLE_NAME;

    for (size_t i = 0; text && i < v->n && at < 127; i++) {
        char c = v->text[i];

        if (c == '\n' && v->kind == PLAIT_PICKLE_NAME)
            c = '.';
        shown[at++] = c >= ' ' && c <= '~' ? c : '?';
    }
    return at;
}

void plait_pickle_show(const struct plait_pickle_value *v, char shown[128])
{
    size_t at = 0;

    if (v->kind == PLAIT_PICKLE_NAME && v->items) { /* always two */
        at = show_text(v->items[0], at, shown);
        if (at < 127)
            shown[at++] = '.';
        at = show_text(v->items[1], at, shown);
    } else {
        at = show_text(v, at, shown);
    }
    shown[at] = '\0';
}
