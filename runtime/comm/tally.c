/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/tally.h"

/* The hash is a polynomial in BASE, modulo 2^64: so a sequence can be taken out
 * of it and put in again elsewhere. */
#define BASE UINT64_C(0x9e3779b97f4a7c15)
#define SHARE_BITS 26

static uint64_t power(uint64_t base, uint64_t n)
{
    uint64_t result = 1;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            result *= base;
        base *= base;
    }
    return result;
}

/* Spreads what differs in a few bits over all of them. */
static uint64_t spread(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

void plait_tally_add(struct plait_tally *tally, uint64_t what)
{
    tally->n++;
    tally->hash = tally->hash * BASE + spread(what + 1);
}

struct plait_tally plait_tally_since(struct plait_tally before,
                                     struct plait_tally now)
{
    uint64_t n = now.n - before.n;

    return (struct plait_tally){n, now.hash - before.hash * power(BASE, n)};
}

struct plait_tally plait_tally_join(struct plait_tally first,
                                    struct plait_tally then)
{
    return (struct plait_tally){first.n + then.n,
                                first.hash * power(BASE, then.n) + then.hash};
}

double plait_tally_share(struct plait_tally tally, int rank, int size)
{
    uint64_t mixed = spread(tally.hash + spread(tally.n));
    double value = (double)(mixed >> (64 - SHARE_BITS));

    return rank == 0 ? value * (size - 1) : -value;
}
