/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PICKLE_PICKLE_H
#define PLAIT_RUNTIME_PICKLE_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"

/* A Python pickle (protocols 2 to 5) as a tree of values. Nothing is imported,
 * called or created: a class is its name, an object is what it would be made
 * from. */

enum plait_pickle_kind {
    PLAIT_PICKLE_NONE,
    PLAIT_PICKLE_BOOL,
    PLAIT_PICKLE_INT,
    PLAIT_PICKLE_REAL,
    PLAIT_PICKLE_TEXT,
    PLAIT_PICKLE_BYTES,
    PLAIT_PICKLE_LIST, /* also tuples and sets */
    PLAIT_PICKLE_DICT, /* items: key, value, key, ... */
    PLAIT_PICKLE_NAME, /* of a class or function; text: "module name" */
    PLAIT_PICKLE_KEPT, /* data kept elsewhere: items[0] says where */
    PLAIT_PICKLE_OBJECT
};

struct plait_pickle_value {
    enum plait_pickle_kind kind;
    int64_t i; /* an INT that fits, or a BOOL */
    double r;
    const char *text; /* [n], no 0 at its end */
    size_t n;         /* of text, or of items */
    size_t room;
    const struct plait_pickle_value **items; /* of an object: pairs put into it,
                                                as into a dict */
    /* Of an object: what was called, with these arguments, and the state that
     * it was given then. */
    const struct plait_pickle_value *callee, *args, *state;
};

struct plait_pickle;

/* `bytes` stay the caller's, and must not change. `name` stands for them in
 * errors. NULL with EINVAL or ENOMEM. */
struct plait_pickle *plait_pickle_parse(const char *name,
                                        const unsigned char *bytes, size_t size,
                                        struct plait_error *err);
void plait_pickle_destroy(struct plait_pickle *pickle);

const struct plait_pickle_value *
plait_pickle_root(const struct plait_pickle *pickle);

/* Whether the value is this text, or the name of this class. */
bool plait_pickle_is(const struct plait_pickle_value *value, const char *text);

/* The value under a key of a dict, an ordered dict or an object with
 * attributes; NULL: none, or the value is none of these. */
const struct plait_pickle_value *
plait_pickle_find(const struct plait_pickle_value *value, const char *key);

/* The dict in a value: itself, that of an ordered dict, or an object's
 * attributes; NULL: there is none. */
const struct plait_pickle_value *
plait_pickle_dict(const struct plait_pickle_value *value);

/* The first class or function that the pickle names and that is none of
 * known [n]; NULL: there is none. */
const struct plait_pickle_value *
plait_pickle_unknown_name(const struct plait_pickle *pickle,
                          const char *const *known, size_t n);

/* A text, or "module.name" of a name, as one line that fits, with ? for what is
 * no printable character of ASCII. */
void plait_pickle_show(const struct plait_pickle_value *value, char shown[128]);

#endif
