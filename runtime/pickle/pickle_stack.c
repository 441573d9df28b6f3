/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pickle/pickle_stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int plait_pickle_corrupt(const struct plait_pickle_stack *s, const char *what)
{
    errno = EINVAL;
    plait_errorf(s->err, "%s: corrupt pickle: %s at byte %zu", s->name, what,
                 (size_t)(s->at - s->start));
    return -1;
}

int plait_pickle_no_memory(const struct plait_pickle_stack *s)
{
    errno = ENOMEM;
    plait_errorf(s->err, "%s: out of memory", s->name);
    return -1;
}

value_t *plait_pickle_new(struct plait_pickle_stack *s,
                          enum plait_pickle_kind kind)
{
    struct plait_pickle_chunk *c = s->pickle->chunks;
    value_t *v;

    if (!c || c->n == (int)(sizeof(c->values) / sizeof(c->values[0]))) {
        c = calloc(1, sizeof(*c));
        if (!c) {
            plait_pickle_no_memory(s);
            return NULL;
        }
        c->next = s->pickle->chunks;
        s->pickle->chunks = c;
    }
    v = &c->values[c->n++];
    v->kind = kind;
    return v;
}

/* Make room for one more element. */
static int make_room(struct plait_pickle_stack *s, void *array, size_t n,
                     size_t *room, size_t size)
{
    void *old, *more;

    if (n < *room)
        return 0;
    memcpy(&old, array, sizeof(old));
    more = realloc(old, (*room * 2 + 8) * size);
    if (!more)
        return plait_pickle_no_memory(s);
    memcpy(array, &more, sizeof(more));
    *room = *room * 2 + 8;
    return 0;
}

int plait_pickle_push(struct plait_pickle_stack *s, value_t *v)
{
    if (!v ||
        make_room(s, &s->values, s->depth, &s->room, sizeof(*s->values)) < 0)
        return -1;
    s->values[s->depth++] = v;
    return 0;
}

value_t *plait_pickle_pop(struct plait_pickle_stack *s)
{
    size_t floor = s->nmarks ? s->marks[s->nmarks - 1] : 0;

    if (s->depth <= floor) {
        plait_pickle_corrupt(s, "nothing on the stack");
        return NULL;
    }
    return s->values[--s->depth];
}

value_t *plait_pickle_top(struct plait_pickle_stack *s)
{
    value_t *v = plait_pickle_pop(s);

    if (v)
        s->depth++;
    return v;
}

int plait_pickle_mark(struct plait_pickle_stack *s)
{
    if (make_room(s, &s->marks, s->nmarks, &s->marks_room, sizeof(*s->marks)) <
        0)
        return -1;
    s->marks[s->nmarks++] = s->depth;
    return 0;
}

int plait_pickle_pop_marked(struct plait_pickle_stack *s, value_t ***values,
                            size_t *n)
{
    size_t mark;

    if (!s->nmarks)
        return plait_pickle_corrupt(s, "no mark");
    mark = s->marks[--s->nmarks];
    *values = s->values ? s->values + mark : NULL;
    *n = s->depth - mark;
    s->depth = mark;
    return 0;
}

int plait_pickle_add(struct plait_pickle_stack *s, value_t *to,
                     const value_t *item)
{
    if (make_room(s, &to->items, to->n, &to->room, sizeof(*to->items)) < 0)
        return -1;
    to->items[to->n++] = item;
    return 0;
}

int plait_pickle_add_all(struct plait_pickle_stack *s, value_t *to,
                         value_t **items, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (plait_pickle_add(s, to, items[i]) < 0)
            return -1;
    return 0;
}

int plait_pickle_memoize(struct plait_pickle_stack *s, uint64_t index)
{
    value_t *v = plait_pickle_top(s), **more;
    size_t room;

    if (!v)
        return -1;
    if (index > s->memoized)
        return plait_pickle_corrupt(s, "a number of the memo");
    if (index >= s->memo_room) {
        room = index * 2 + 64;
        more = realloc(s->memo, room * sizeof(*more));
        if (!more)
            return plait_pickle_no_memory(s);
        memset(more + s->memo_room, 0, (room - s->memo_room) * sizeof(*more));
        s->memo = more;
        s->memo_room = room;
    }
    s->memo[index] = v;
    s->memoized += index == s->memoized;
    return 0;
}

int plait_pickle_recall(struct plait_pickle_stack *s, uint64_t index)
{
    if (index >= s->memo_room || !s->memo[index])
        return plait_pickle_corrupt(s, "what is not in the memo");
    return plait_pickle_push(s, s->memo[index]);
}

void plait_pickle_stack_free(struct plait_pickle_stack *s)
{
    free(s->values);
    free(s->marks);
    free(s->memo);
}
