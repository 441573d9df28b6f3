/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_ARENA_H
#define PLAIT_RUNTIME_MODEL_ARENA_H

#include "runtime/model/model.h"
#include "topology/job/held.h"

/* One allocation of which tensors get parts, one behind the other. The same
 * code runs twice: with base NULL it only measures and all pointers are NULL;
 * after plait_arena_alloc() they are addresses. */
struct plait_arena {
    char *base;
    double at; /* bytes of what has been taken */
    struct plait_rank_sizes z;
};

/* For micro-batches of `rows` rows of `batch` sequences. */
void plait_arena_open(struct plait_arena *arena,
                      const struct plait_model *model, size_t rows, int batch);
void *plait_arena_take(struct plait_arena *arena, double bytes);
/* Sets the pointers of `x`, the struct of these groups, to what exists of
 * them. */
void plait_arena_place(struct plait_arena *arena, unsigned groups, void *x);
/* Allocates what has been measured as the model's arena, from whose beginning
 * parts are then taken; -1: out of memory, and `at` is what it would have
 * been. */
int plait_arena_alloc(struct plait_arena *arena, struct plait_model *model);

#endif
