/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

const struct plait_ops *plait_ops_cpu(void)
{
    return plait_ops_ref();
}
