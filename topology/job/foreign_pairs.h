/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FOREIGN_PAIRS_H
#define PLAIT_TOPOLOGY_JOB_FOREIGN_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

#include "topology/base/error.h"

enum { PLAIT_PAIRS_MOST = 256 };

/* Names and values of another software's configuration, one level. '-' in a
 * name is '_' here, and a list is one value with blanks between its items, of
 * which the last is "..." where more do not fit. */
struct plait_pairs {
    int n;
    bool arguments; /* of a command line */
    struct {
        char name[56], value[4096];
        bool null; /* it has no value, and a default does not give it one */
    } at[PLAIT_PAIRS_MOST];
};

/* Read a file's text, which is changed, into `p`: "--num-layers 32 ..." as on
 * Megatron's command line, or a mapping of JSON or YAML. Of a configuration
 * whose text model is in a part of its own (text_config), that part is read,
 * and tie_word_embeddings beside it. 1: the pairs are in `p`; 0: it is Plait's
 * own configuration; -1 with the reason. */
int plait_pairs_read(const char *path, char *text, size_t size,
                     struct plait_pairs *p, struct plait_error *err);

/* Give a name this value where it is not given. */
void plait_pairs_default(struct plait_pairs *p, const char *name,
                         const char *value);

/* The same for "name=value name=value", but where null is given, too; NULL:
 * none. */
void plait_pairs_add(struct plait_pairs *p, const char *sizes);

/* NULL: the name is not given, or as null. */
const char *plait_pairs_value(const struct plait_pairs *p, const char *name);

/* Whether a flag is given, and not to say no: YAML has both. */
bool plait_pairs_flag(const struct plait_pairs *p, const char *name);

/* The value as a number, or `otherwise` if it is not given. */
int plait_pairs_number(const struct plait_pairs *p, const char *name,
                       int otherwise);

/* Of a list that is given: how many first items are this word. -1: another
 * item is, too. */
int plait_pairs_first(const struct plait_pairs *p, const char *name,
                      const char *word);

#endif
