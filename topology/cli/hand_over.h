/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_HAND_OVER_H
#define PLAIT_TOPOLOGY_CLI_HAND_OVER_H

#include "topology/layout/layout.h"

/* A layout in the arguments of other trainers. */
enum hand_over {
    HAND_OVER_NONE,
    HAND_OVER_MEGATRON,
    HAND_OVER_DEEPSPEED,
    HAND_OVER_TORCHTITAN,
    HAND_OVER_NEMO,
    HAND_OVER_JAX,
    HAND_OVER_LIGHTNING,
    HAND_OVER_ACCELERATE
};

/* "megatron", "deepspeed", ... */
int hand_over_parse(const char *what, const char *text, enum hand_over *to,
                    struct plait_error *err);

/* Can the trainer make the layout's groups? -1, with the reason in err. */
int hand_over_check(enum hand_over to, const struct plait_layout *layout,
                    struct plait_error *err);

/* The trainer's arguments, variables or JSON, to be freed; NULL: out of memory.
 */
char *hand_over_format(enum hand_over to, const struct plait_layout *layout);

/* The command with Megatron's arguments appended: a new array, which lives as
 * long as the process, as do its new texts. NULL: out of memory. */
char **hand_over_append(const struct plait_layout *layout, char **command);

#endif
