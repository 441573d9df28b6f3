/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_TAP_H
#define PLAIT_TESTS_UNIT_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of the Test Anything Protocol that the tests need. */
static int tap_count, tap_failed;

static inline int __attribute__((format(printf, 2, 3)))
ok(int pass, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    printf("%s %d - ", pass ? "ok" : "not ok", ++tap_count);
    vprintf(fmt, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
    if (!pass)
        tap_failed++;
    return pass;
}

static inline void __attribute__((format(printf, 1, 2)))
diag(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    printf("# ");
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

static inline void skip(const char *why)
{
    printf("ok %d # SKIP %s\n", ++tap_count, why);
}

/* Skips the whole program. */
static inline int skip_all(const char *why)
{
    printf("1..0 # SKIP %s\n", why);
    return 0;
}

/* Whether this run takes everything (tests/lib/tier.sh). */
static inline bool all_tier(void)
{
    const char *tier = getenv("PLAIT_TEST_TIER");

    return tier == NULL || strcmp(tier, "quick") != 0;
}

static inline int done_testing(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed ? 1 : 0;
}

#endif
