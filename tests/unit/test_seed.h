/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_TEST_SEED_H
#define PLAIT_TESTS_TEST_SEED_H

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "tap.h"

/* The seed of a test that draws its numbers anew each time: the clock's, or
 * that of PLAIT_TEST_SEED; printed, so that a failure can be repeated. */
static inline uint64_t test_seed(void)
{
    const char *given = getenv("PLAIT_TEST_SEED");
    uint64_t seed =
        given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) << 20;

    diag("PLAIT_TEST_SEED=%" PRIu64 " repeats this run", seed);
    return seed;
}

#endif
