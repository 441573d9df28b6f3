/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_CLOCK_H
#define PLAIT_TOPOLOGY_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* The time. Durations and deadlines are measured with the monotonic clock,
 * which nobody sets and which all processes of a node share; what a user or
 * another node reads is the time of day. */

#ifdef __cplusplus
extern "C" {
#endif

/* What `clock` will show `ns` nanoseconds from now: for calls that wait until a
 * time. */
static inline struct timespec plait_clock_in(clockid_t clock, int64_t ns)
{
    struct timespec t;

    clock_gettime(clock, &t);
    ns += t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

static inline double plait_clock_seconds(clockid_t clock)
{
    struct timespec t = plait_clock_in(clock, 0);

    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of the monotonic clock. */
static inline double plait_clock_now(void)
{
    return plait_clock_seconds(CLOCK_MONOTONIC);
}

/* The same in nanoseconds and in milliseconds, rounded down. */
static inline uint64_t plait_clock_ns(void)
{
    struct timespec t = plait_clock_in(CLOCK_MONOTONIC, 0);

    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline int64_t plait_clock_ms(void)
{
    return (int64_t)(plait_clock_ns() / 1000000);
}

/* The time of day: seconds since 1970. */
static inline double plait_clock_unix(void)
{
    return plait_clock_seconds(CLOCK_REALTIME);
}

/* Seconds for which a processor has run this thread. */
static inline double plait_clock_thread(void)
{
    return plait_clock_seconds(CLOCK_THREAD_CPUTIME_ID);
}

#ifdef __cplusplus
}
#endif
#endif
