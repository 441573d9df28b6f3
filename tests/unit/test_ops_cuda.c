/* SPDX-License-Identifier: Apache-2.0 */
#include "ops_trial.h"
#include "tap.h"

int main(void)
{
    const char *why = NULL;
    const struct plait_ops *ops[2] = {plait_ops_cuda(&why)};

    if (ops[0] == NULL)
        return skip_all(why);
    return trial_run_all(ops);
}
