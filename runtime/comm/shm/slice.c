/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/shm/slice.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef SYS_sched_setattr

/* sched_setattr(2), its first version; the C library has no name for it. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

void plait_slice_shorten(void)
{
    struct attributes a = {.size = sizeof(a)};
    int saved = errno;

    if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) == 0 &&
        (a.policy == SCHED_OTHER || a.policy == SCHED_BATCH)) {
        a.runtime = PLAIT_SLICE_NS;
        syscall(SYS_sched_setattr, 0, &a, 0);
    }
    errno = saved;
}

#else

void plait_slice_shorten(void)
{
}

#endif
