/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_ALL_OK_H
#define PLAIT_TESTS_UNIT_ALL_OK_H

#include "runtime/comm/comm.h"
#include "tap.h"

/* Collective: prints one line of TAP, which passes if it did on all ranks. */
static inline void all_ok(struct plait_comm *world, int pass, const char *what)
{
    double bad = !pass;

    if (!pass)
        fprintf(stderr, "# rank %d: %s failed: %s\n", plait_comm_rank(world),
                what, plait_comm_error(world));
    if (plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM) < 0)
        bad = 1;
    if (plait_comm_rank(world) == 0)
        ok(bad == 0, "%s", what);
}

#endif
