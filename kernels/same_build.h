/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_SAME_BUILD_H
#define PLAIT_KERNELS_SAME_BUILD_H

#include <stdint.h>
#include <string.h>

/* What a program and a module that it opens must have in common, as they were
 * compiled against the same structures: a program may outlive an upgrade of its
 * files, and opens the module only then. The module exports its own. */
struct plait_build {
    char version[24];
    uint64_t bytes[3]; /* of structures that both know */
};

#define PLAIT_CUDA_BUILD                                             \
    {                                                                \
        PACKAGE_VERSION,                                             \
        {                                                            \
            sizeof(struct plait_ops), sizeof(struct plait_gpu_facts) \
        }                                                            \
    }
#define PLAIT_NCCL_BUILD                                         \
    {                                                            \
        PACKAGE_VERSION,                                         \
        {                                                        \
            sizeof(struct plait_ops), sizeof(struct plait_comm), \
                sizeof(struct plait_comm_vtable)                 \
        }                                                        \
    }

/* theirs: of the module, NULL: it exports none. */
static inline int plait_build_is(const struct plait_build *theirs,
                                 const struct plait_build *mine)
{
    return theirs != NULL && memcmp(theirs, mine, sizeof(*mine)) == 0;
}

#endif
