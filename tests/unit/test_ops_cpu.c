/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu_tables.h"
#include "ops_trial.h"
#include "tap.h"

_Static_assert(CPU_TABLES <= TRIAL_SIDES, "a table would not be tried");

int main(void)
{
    const struct plait_ops *list[CPU_TABLES + 1];
    const char *why = NULL;

    if (plait_cpu_isa(&why) == NULL)
        return skip_all(why);
    list_cpu_tables(list);
    return trial_run_all(list);
}
