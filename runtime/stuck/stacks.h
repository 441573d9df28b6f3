/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_STACKS_H
#define PLAIT_RUNTIME_STUCK_STACKS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/stuck/judge.h"
#include "runtime/stuck/runs.h"
#include "topology/layout/layout.h"

/* Ranks of trainers that keep no record: where each of them is, by its stack.
 * Who does not wait for others is who they wait for, as far as that shows. */

struct plait_stack {
    int rank, world, gpu, pid; /* gpu -1: none */
    int size[PLAIT_NAXES];     /* of the plan's layout; 0: there is no plan */
    int at[PLAIT_NAXES];
    char job[64], host[64], program[32]; /* job "": none */
    enum plait_stuck_state state;
    bool waits; /* for other ranks */
    bool moved; /* between two looks */
    char where[192];
};

struct plait_stacks {
    int n;
    struct plait_stack *at; /* by job, then by rank */
};

/* Of the job or the process in `which`, looked at twice, `seconds` apart. With
 * Python's stacks where py-spy is on PATH and may read them. -1 with errno: out
 * of memory. */
int plait_stacks_find(const struct plait_stuck_which *which, int seconds,
                      struct plait_stacks *stacks);
/* Keeps a copy in its place; one that is there already stays. */
int plait_stacks_add(struct plait_stacks *stacks,
                     const struct plait_stack *stack);
/* As lines of text, and from such lines; those of another form are passed
 * over. */
void plait_stacks_dump(const struct plait_stacks *stacks);
int plait_stacks_read(const char *text, struct plait_stacks *stacks);
void plait_stacks_clear(struct plait_stacks *stacks);

/* What `py-spy dump` says of the main thread: the function it is in, with the
 * line of the program that led there, and whether that waits for other ranks.
 * -1: nothing. Pure. */
int plait_stack_python(const char *dump, char *where, size_t size, bool *waits);

/* Of n ranks of one job: the sentence in a line, and below, who is where. Of at
 * most `size` bytes. Pure. */
void plait_stacks_explain(const struct plait_stack *stack, int n, char *text,
                          size_t size);

#endif
