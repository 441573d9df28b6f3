/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_STACKS_H
#define PLAIT_RUNTIME_STUCK_STACKS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/stuck/judge.h"
#include "runtime/stuck/runs.h"
#include "topology/layout/layout.h"

/* Ranks of trainers that keep no record: where each is, judged by its stack.
 * The rank that does not wait for others is presumed to be the one that they
 * wait for. */

struct plait_stack {
    int rank, world, gpu, pid; /* gpu -1: none */
    unsigned owner;            /* user */
    int size[PLAIT_NAXES];     /* of the plan's layout; 0: no plan */
    int at[PLAIT_NAXES];
    char job[64], host[64], program[32]; /* job "": none */
    enum plait_stuck_state state;
    bool waits; /* for other ranks */
    bool moved; /* between the two looks */
    char where[192];
};

struct plait_stacks {
    int n;
    struct plait_stack *at; /* sorted by owner, by job, then by rank */
};

/* Looks at the ranks of a job or a process twice, `seconds` apart. Takes
 * Python's stacks where py-spy is on PATH and may read them. -1 with errno: out
 * of memory. */
int plait_stacks_find(const struct plait_stuck_which *which, int seconds,
                      struct plait_stacks *stacks);
/* Inserts a copy in order; a rank that is listed already stays as it is. */
int plait_stacks_add(struct plait_stacks *stacks,
                     const struct plait_stack *stack);
/* Print the stacks as lines of text; read such lines. Other lines are
 * ignored. */
void plait_stacks_dump(const struct plait_stacks *stacks);
int plait_stacks_read(const char *text, struct plait_stacks *stacks);
void plait_stacks_clear(struct plait_stacks *stacks);

/* Parses the main thread's stack in the output of `py-spy dump`: the innermost
 * function, the line of the program that led to it, and whether it waits for
 * other ranks. -1: no stack. Pure. */
int plait_stack_python(const char *dump, char *where, size_t size, bool *waits);

/* Explains n ranks of one job: a sentence, then lines that say which ranks are
 * where. Writes at most `size` bytes. Pure. */
void plait_stacks_explain(const struct plait_stack *stack, int n, char *text,
                          size_t size);

#endif
