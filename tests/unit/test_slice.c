/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's time slice, as the kernel reports it. */
#include "config.h"

#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/comm/shm/slice.h"
#include "tap.h"

/* Nanoseconds; 0 if this kernel reports none. */
static long long time_slice(void)
{
    uint64_t attributes[6] = {
        0}; /* sched_setattr(2): the fourth is `runtime` */

    if (syscall(SYS_sched_getattr, 0, attributes, sizeof(attributes), 0) < 0)
        return 0;
    return (long long)attributes[3];
}

int main(void)
{
    const struct sched_param none = {0};
    long long before = time_slice();

    setpriority(PRIO_PROCESS, 0, 3);
    plait_slice_shorten();
    if (before == 0)
        skip("this kernel tells no time slices");
    else
        ok(time_slice() == PLAIT_SLICE_NS, "a slice of %lld ns becomes %lld",
           before, time_slice());
    ok(getpriority(PRIO_PROCESS, 0) == 3, "the priority stays");

    sched_setscheduler(0, SCHED_IDLE, &none);
    before = time_slice();
    plait_slice_shorten();
    ok(sched_getscheduler(0) == SCHED_IDLE && time_slice() == before,
       "so does another policy");
    return done_testing();
}
