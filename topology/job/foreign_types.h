/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FOREIGN_TYPES_H
#define PLAIT_TOPOLOGY_JOB_FOREIGN_TYPES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A type of model of Hugging Face's (model_type), all of which plait-train
 * trains, and how it is planned: as the family whose layers cost the same. */
struct plait_foreign_type {
    const char *name;
    const char *family;
    const char *more[5]; /* keys and their values; NULL ends them */
    int every;           /* the last of so many layers has no sliding window */
    const char *sizes;   /* "key=value ..." where the file does not say them */
};

/* NULL: the type is not known. */
const struct plait_foreign_type *plait_foreign_type_find(const char *name);

/* The names of all types, with commas between them. */
void plait_foreign_type_names(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
