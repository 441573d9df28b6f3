/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/finite.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Elements that are checked as a whole before the first bad one is searched
 * for. */
#define BLOCK 4096
#define RUN 64

/* For a number whose exponent is all ones, the sum carries into the highest
 * bit, from which the sign was removed: only additions, so that the check is as
 * fast as memory. */
static uint32_t carry(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return (bits & UINT32_C(0x7fffffff)) + UINT32_C(0x00800000);
}

/* Compilers vectorize a loop of a constant length. */
static bool has_bad(const float *x, size_t n)
{
    uint32_t all = 0;
    size_t at;

    for (at = 0; at + RUN <= n; at += RUN)
        for (size_t i = 0; i < RUN; i++)
            all |= carry(x[at + i]);
    for (; at < n; at++)
        all |= carry(x[at]);
    return all >> 31;
}

size_t plait_finite_first_bad(const float *x, size_t n)
{
    size_t part;

    for (size_t at = 0; at < n; at += part) {
        part = n - at < BLOCK ? n - at : BLOCK;
        if (!has_bad(x + at, part))
            continue;
        while (isfinite(x[at]))
            at++;
        return at;
    }
    return n;
}

int plait_finite_check(const char *name, size_t first, const float *x, size_t n,
                       struct plait_error *err)
{
    size_t bad = plait_finite_first_bad(x, n);

    if (bad == n)
        return 0;
    errno = EDOM;
    return plait_errorf(err, "%s has %g at element %zu", name, x[bad],
                        first + bad);
}
