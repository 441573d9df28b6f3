/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PICKLE_PICKLE_STACK_H
#define PLAIT_RUNTIME_PICKLE_PICKLE_STACK_H

#include "runtime/pickle/pickle.h"

/* The machine that runs a pickle as a program: a stack with marks, and a memo.
 * Its functions describe in err what is wrong with the pickle. */

typedef struct plait_pickle_value value_t;

/* Values live as long as the pickle: a value may be part of many others, and of
 * itself. */
struct plait_pickle_chunk {
    struct plait_pickle_chunk *next;
    int n;
    value_t values[256];
};

struct plait_pickle {
    struct plait_pickle_chunk *chunks;
    const value_t *root;
};

struct plait_pickle_stack {
    struct plait_pickle *pickle;
    const char *name;
    const unsigned char *start, *at, *end; /* of the program */
    value_t **values;
    size_t depth, room;
    size_t *marks; /* depths of the stack */
    size_t nmarks, marks_room;
    value_t **memo;
    size_t memo_room, memoized;
    struct plait_error *err;
};

/* Both return -1. */
int plait_pickle_corrupt(const struct plait_pickle_stack *s, const char *what);
int plait_pickle_no_memory(const struct plait_pickle_stack *s);

value_t *plait_pickle_new(struct plait_pickle_stack *s,
                          enum plait_pickle_kind kind);
/* `value` may be NULL, after a failure: then it returns -1. */
int plait_pickle_push(struct plait_pickle_stack *s, value_t *value);
/* Only values above the last mark may be taken. */
value_t *plait_pickle_pop(struct plait_pickle_stack *s);
value_t *plait_pickle_top(struct plait_pickle_stack *s);
int plait_pickle_mark(struct plait_pickle_stack *s);
/* Removes the last mark and the values above it, which stay in memory until the
 * next push. */
int plait_pickle_pop_marked(struct plait_pickle_stack *s, value_t ***values,
                            size_t *n);

int plait_pickle_add(struct plait_pickle_stack *s, value_t *to,
                     const value_t *item);
int plait_pickle_add_all(struct plait_pickle_stack *s, value_t *to,
                         value_t **items, size_t n);

int plait_pickle_memoize(struct plait_pickle_stack *s, uint64_t index);
int plait_pickle_recall(struct plait_pickle_stack *s, uint64_t index);

/* Frees what was only needed to run the pickle. */
void plait_pickle_stack_free(struct plait_pickle_stack *s);

#endif
