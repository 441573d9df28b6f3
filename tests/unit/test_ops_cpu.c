/* SPDX-License-Identifier: Apache-2.0 */
#include "ops_trial.h"

int main(void)
{
    return trial_run_all(plait_ops_cpu());
}
