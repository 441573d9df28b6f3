/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu_tables.h"
#include "ops_trial.h"

int main(void)
{
    const struct plait_ops *list[CPU_TABLES + 1];

    list_cpu_tables(list);
    return trial_run_all(list);
}
