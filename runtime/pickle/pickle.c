/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pickle/pickle.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pickle/pickle_stack.h"

/* -- the bytes ------------------------------------------------------------ */

/* The next n bytes; NULL: there are fewer. */
static const unsigned char *take(struct plait_pickle_stack *s, uint64_t n)
{
    const unsigned char *bytes = s->at;

    if (n > (uint64_t)(s->end - s->at)) {
        plait_pickle_corrupt(s, "ends too early");
        return NULL;
    }
    s->at += n;
    return bytes;
}

/* A number of 1, 2, 4 or 8 bytes, little-endian. */
static int take_number(struct plait_pickle_stack *s, int size, uint64_t *n)
{
    const unsigned char *bytes = take(s, (uint64_t)size);

    if (!bytes)
        return -1;
    *n = 0;
    for (int i = size; i-- > 0;)
        *n = *n << 8 | bytes[i];
    return 0;
}

static int push_int(struct plait_pickle_stack *s, int64_t i)
{
    value_t *v = plait_pickle_new(s, PLAIT_PICKLE_INT);

    if (v)
        v->i = i;
    return plait_pickle_push(s, v);
}

/* An integer of `size` bytes in two's complement. Longer ones than 8 bytes are
 * not needed here, and become a value without contents. */
static int push_long(struct plait_pickle_stack *s, uint64_t size)
{
    const unsigned char *bytes = take(s, size);
    uint64_t i = 0;

    if (!bytes)
        return -1;
    if (size > 8)
        return plait_pickle_push(s, plait_pickle_new(s, PLAIT_PICKLE_BYTES));
    for (size_t b = size; b-- > 0;)
        i = i << 8 | bytes[b];
    if (size && size < 8 && bytes[size - 1] & 0x80)
        i |= ~(uint64_t)0 << (8 * size);
    return push_int(s, (int64_t)i);
}

/* A text: its length as a number of `size` bytes, then the text. */
static int push_text(struct plait_pickle_stack *s, enum plait_pickle_kind kind,
                     int size)
{
    const unsigned char *bytes;
    value_t *v;
    uint64_t n;

    if (take_number(s, size, &n) < 0 || !(bytes = take(s, n)))
        return -1;
    v = plait_pickle_new(s, kind);
    if (v) {
        v->text = (const char *)bytes;
        v->n = n;
    }
    return plait_pickle_push(s, v);
}

static int push_bool(struct plait_pickle_stack *s, bool is)
{
    value_t *v = plait_pickle_new(s, PLAIT_PICKLE_BOOL);

    if (v)
        v->i = is;
    return plait_pickle_push(s, v);
}

static int push_real(struct plait_pickle_stack *s)
{
    const unsigned char *bytes = take(s, 8);
    value_t *v;
    uint64_t bits;

    if (!bytes)
        return -1;
    v = plait_pickle_new(s, PLAIT_PICKLE_REAL);
    memcpy(&bits, bytes, 8);
    bits = be64toh(bits);
    if (v)
        memcpy(&v->r, &bits, 8);
    return plait_pickle_push(s, v);
}

/* "module\nname\n": kept as it is, with the line break between the two. */
static int push_name(struct plait_pickle_stack *s)
{
    const unsigned char *first = s->at, *line, *last;
    value_t *v;

    line = memchr(first, '\n', (size_t)(s->end - first));
    last = line ? memchr(line + 1, '\n', (size_t)(s->end - line - 1)) : NULL;
    if (!last)
        return plait_pickle_corrupt(s, "a name without an end");
    s->at = last + 1;
    v = plait_pickle_new(s, PLAIT_PICKLE_NAME);
    if (v) {
        v->text = (const char *)first;
        v->n = (size_t)(last - first);
    }
    return plait_pickle_push(s, v);
}

/* -- values made of others ------------------------------------------------- */

static int make_list(struct plait_pickle_stack *s, size_t n)
{
    value_t *v = plait_pickle_new(s, PLAIT_PICKLE_LIST);

    if (!v)
        return -1;
    if (s->depth - (s->nmarks ? s->marks[s->nmarks - 1] : 0) < n)
        return plait_pickle_corrupt(s, "nothing on the stack");
    if (n > 0 && plait_pickle_add_all(s, v, s->values + s->depth - n, n) < 0)
        return -1;
    s->depth -= n;
    return plait_pickle_push(s, v);
}

static int make_marked(struct plait_pickle_stack *s,
                       enum plait_pickle_kind kind)
{
    value_t *v = plait_pickle_new(s, kind), **items;
    size_t n;

    if (!v || plait_pickle_pop_marked(s, &items, &n) < 0)
        return -1;
    if (kind == PLAIT_PICKLE_DICT && n % 2)
        return plait_pickle_corrupt(s, "a key without a value");
    return plait_pickle_add_all(s, v, items, n) < 0 ? -1
                                                    : plait_pickle_push(s, v);
}

/* Append items to a list, or pairs to a dict or an object that is one. */
static int put_items(struct plait_pickle_stack *s, bool marked, bool pairs)
{
    value_t **items = NULL, *to;
    size_t n = pairs ? 2 : 1;

    if (marked ? plait_pickle_pop_marked(s, &items, &n) < 0 : false)
        return -1;
    for (size_t i = 0; !marked && i < n; i++)
        if (!plait_pickle_pop(s))
            return -1;
    if (!marked)
        items = s->values + s->depth;
    to = plait_pickle_top(s);
    if (!to)
        return -1;
    if (to->kind == PLAIT_PICKLE_OBJECT && !pairs)
        return 0; /* an instance of a subclass of list */
    if (to->kind != PLAIT_PICKLE_OBJECT &&
        to->kind != (pairs ? PLAIT_PICKLE_DICT : PLAIT_PICKLE_LIST))
        return plait_pickle_corrupt(s, "items for what takes none");
    if (pairs && n % 2)
        return plait_pickle_corrupt(s, "a key without a value");
    return plait_pickle_add_all(s, to, items, n);
}

static int make_object(struct plait_pickle_stack *s, bool keywords)
{
    const value_t *more = keywords ? plait_pickle_pop(s) : NULL, *args, *callee;
    value_t *v;

    if (keywords && !more)
        return -1;
    args = plait_pickle_pop(s);
    callee = args ? plait_pickle_pop(s) : NULL;
    v = callee ? plait_pickle_new(s, PLAIT_PICKLE_OBJECT) : NULL;
    if (!v)
        return -1;
    v->callee = callee;
    v->args = args;
    return plait_pickle_push(s, v);
}

static int give_state(struct plait_pickle_stack *s)
{
    const value_t *state = plait_pickle_pop(s);
    value_t *to = state ? plait_pickle_top(s) : NULL;

    if (!to)
        return -1;
    if (to->kind != PLAIT_PICKLE_OBJECT)
        return plait_pickle_corrupt(s, "a state for what is no object");
    to->state = state;
    return 0;
}

/* A name whose module and name are two texts on the stack. */
static int name_of_texts(struct plait_pickle_stack *s)
{
    value_t *name = plait_pickle_pop(s),
            *module = name ? plait_pickle_pop(s) : NULL, *v;

    if (!module)
        return -1;
    v = plait_pickle_new(s, PLAIT_PICKLE_NAME);
    return v && plait_pickle_add(s, v, module) == 0 &&
                   plait_pickle_add(s, v, name) == 0
               ? plait_pickle_push(s, v)
               : -1;
}

static int keep(struct plait_pickle_stack *s)
{
    const value_t *where = plait_pickle_pop(s);
    value_t *v = where ? plait_pickle_new(s, PLAIT_PICKLE_KEPT) : NULL;

    return v && plait_pickle_add(s, v, where) == 0 ? plait_pickle_push(s, v)
                                                   : -1;
}

/* -- opcodes -------------------------------------------------------------- */

static int run_text(struct plait_pickle_stack *s, int opcode)
{
    static const struct {
        int opcode, size; /* bytes of the length before the text */
        enum plait_pickle_kind kind;
    } texts[] = {
        {'X', 4, PLAIT_PICKLE_TEXT},   {0x8c, 1, PLAIT_PICKLE_TEXT},
        {0x8d, 8, PLAIT_PICKLE_TEXT},  {'U', 1, PLAIT_PICKLE_TEXT},
        {'T', 4, PLAIT_PICKLE_TEXT},   {'C', 1, PLAIT_PICKLE_BYTES},
        {'B', 4, PLAIT_PICKLE_BYTES},  {0x8e, 8, PLAIT_PICKLE_BYTES},
        {0x96, 8, PLAIT_PICKLE_BYTES},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].opcode == opcode)
            return push_text(s, texts[i].kind, texts[i].size);
    return 1;
}

static int run_number(struct plait_pickle_stack *s, int opcode)
{
    uint64_t n;

    switch (opcode) {
    case 'N':
        return plait_pickle_push(s, plait_pickle_new(s, PLAIT_PICKLE_NONE));
    case 0x88:
    case 0x89:
        return push_bool(s, opcode == 0x88);
    case 'K':
        return take_number(s, 1, &n) < 0 ? -1 : push_int(s, (int64_t)n);
    case 'M':
        return take_number(s, 2, &n) < 0 ? -1 : push_int(s, (int64_t)n);
    case 'J':
        return push_long(s, 4);
    case 0x8a:
        return take_number(s, 1, &n) < 0 ? -1 : push_long(s, n);
    case 0x8b:
        return take_number(s, 4, &n) < 0 ? -1 : push_long(s, n);
    case 'G':
        return push_real(s);
    default:
        return 1;
    }
}

static int run_memo(struct plait_pickle_stack *s, int opcode)
{
    uint64_t n;

    switch (opcode) {
    case 'q':
        return take_number(s, 1, &n) < 0 ? -1 : plait_pickle_memoize(s, n);
    case 'r':
        return take_number(s, 4, &n) < 0 ? -1 : plait_pickle_memoize(s, n);
    case 0x94:
        return plait_pickle_memoize(s, s->memoized);
    case 'h':
        return take_number(s, 1, &n) < 0 ? -1 : plait_pickle_recall(s, n);
    case 'j':
        return take_number(s, 4, &n) < 0 ? -1 : plait_pickle_recall(s, n);
    default:
        return 1;
    }
}

static int run_collection(struct plait_pickle_stack *s, int opcode)
{
    switch (opcode) {
    case ')':
    case ']':
    case 0x8f:
        return make_list(s, 0);
    case '}':
        return plait_pickle_push(s, plait_pickle_new(s, PLAIT_PICKLE_DICT));
    case 0x85:
    case 0x86:
    case 0x87:
        return make_list(s, (size_t)opcode - 0x84);
    case 't':
    case 'l':
    case 0x91:
        return make_marked(s, PLAIT_PICKLE_LIST);
    case 'd':
        return make_marked(s, PLAIT_PICKLE_DICT);
    case 'a':
        return put_items(s, false, false);
    case 'e':
    case 0x90:
        return put_items(s, true, false);
    case 's':
        return put_items(s, false, true);
    case 'u':
        return put_items(s, true, true);
    default:
        return 1;
    }
}

static int run_other(struct plait_pickle_stack *s, int opcode)
{
    value_t **dropped;
    uint64_t n;
    size_t count;

    switch (opcode) {
    case 0x80:
        if (take_number(s, 1, &n) < 0)
            return -1;
        return n >= 2 && n <= 5
                   ? 0
                   : plait_pickle_corrupt(s, "a protocol not 2 to 5");
    case 0x95:
        return take_number(s, 8, &n);
    case '(':
        return plait_pickle_mark(s);
    case '0':
        return plait_pickle_pop(s) ? 0 : -1;
    case '1':
        return plait_pickle_pop_marked(s, &dropped, &count);
    case '2':
        return plait_pickle_push(s, plait_pickle_top(s));
    case 'c':
        return push_name(s);
    case 0x93:
        return name_of_texts(s);
    case 'R':
    case 0x81:
        return make_object(s, false);
    case 0x92:
        return make_object(s, true);
    case 'b':
        return give_state(s);
    case 'Q':
        return keep(s);
    default:
        return plait_pickle_corrupt(s,
                                    "an opcode that torch.save does not write");
    }
}

static int run_opcode(struct plait_pickle_stack *s, int opcode)
{
    static int (*const groups[])(struct plait_pickle_stack *, int) = {
        run_text, run_number, run_memo, run_collection, run_other};
    int rc = 1;

    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]) && rc == 1; i++)
        rc = groups[i](s, opcode);
    return rc;
}

static int run_all(struct plait_pickle_stack *s)
{
    while (s->at < s->end) {
        int opcode = *s->at++;

        if (opcode == '.') {
            s->pickle->root = plait_pickle_top(s);
            return s->pickle->root ? 0 : -1;
        }
        if (run_opcode(s, opcode) < 0)
            return -1;
    }
    return plait_pickle_corrupt(s, "ends too early");
}

/* -- the whole ------------------------------------------------------------- */

struct plait_pickle *plait_pickle_parse(const char *name,
                                        const unsigned char *bytes, size_t size,
                                        struct plait_error *err)
{
    struct plait_pickle_stack s = {.name = name,
                                   .start = bytes,
                                   .at = bytes,
                                   .end = bytes + size,
                                   .err = err};
    int rc;

    s.pickle = calloc(1, sizeof(*s.pickle));
    rc = s.pickle ? run_all(&s) : plait_pickle_no_memory(&s);
    plait_pickle_stack_free(&s);
    if (rc == 0)
        return s.pickle;
    plait_pickle_destroy(s.pickle);
    return NULL;
}

void plait_pickle_destroy(struct plait_pickle *pickle)
{
    int saved = errno;
    struct plait_pickle_chunk *next;

    for (struct plait_pickle_chunk *c = pickle ? pickle->chunks : NULL; c;
         c = next) {
        next = c->next;
        for (int i = 0; i < c->n; i++)
            free(c->values[i].items);
        free(c);
    }
    free(pickle);
    errno = saved;
}

const struct plait_pickle_value *
plait_pickle_root(const struct plait_pickle *pickle)
{
    return pickle->root;
}

static bool same_text(const char *text, size_t n, const value_t *v)
{
    return v->kind == PLAIT_PICKLE_TEXT && v->n == n &&
           memcmp(v->text, text, n) == 0;
}

/* A name is stored as "module\nname", or as two texts. */
bool plait_pickle_is(const struct plait_pickle_value *v, const char *text)
{
    const char *blank = strrchr(text, ' ');
    size_t n = strlen(text), first = blank ? (size_t)(blank - text) : n;

    if (!v || (v->kind != PLAIT_PICKLE_TEXT && v->kind != PLAIT_PICKLE_NAME))
        return false;
    if (v->kind == PLAIT_PICKLE_TEXT)
        return same_text(text, n, v);
    if (!blank)
        return false;
    if (v->items) /* always two */
        return same_text(text, first, v->items[0]) &&
               same_text(blank + 1, n - first - 1, v->items[1]);
    return v->n == n && memcmp(v->text, text, first) == 0 &&
           v->text[first] == '\n' &&
           memcmp(v->text + first + 1, blank + 1, n - first - 1) == 0;
}

const struct plait_pickle_value *
plait_pickle_dict(const struct plait_pickle_value *v)
{
    if (!v || v->kind == PLAIT_PICKLE_DICT)
        return v;
    if (v->kind != PLAIT_PICKLE_OBJECT)
        return NULL;
    if (v->n || !v->state)
        return v;
    return v->state->kind == PLAIT_PICKLE_DICT ? v->state : NULL;
}

const struct plait_pickle_value *
plait_pickle_find(const struct plait_pickle_value *v, const char *key)
{
    const value_t *dict = plait_pickle_dict(v);

    for (size_t i = 0; dict && i + 1 < dict->n; i += 2)
        if (plait_pickle_is(dict->items[i], key))
            return dict->items[i + 1];
    return NULL;
}
