/* SPDX-License-Identifier: Apache-2.0 */
/* What is compiled once for each class of processors enters the table here. */
#include "kernels/cpu/cpu.h"

void CPU_NAME(cpu_fill)(struct plait_ops *ops)
{
    CPU_NAME(cpu_fill_attention)(ops);
    CPU_NAME(cpu_fill_block_rows)(ops);
    CPU_NAME(cpu_fill_block_weight)(ops);
    CPU_NAME(cpu_fill_dropout)(ops);
    CPU_NAME(cpu_fill_elementwise)(ops);
    CPU_NAME(cpu_fill_embedding)(ops);
    CPU_NAME(cpu_fill_fp8)(ops);
    CPU_NAME(cpu_fill_image)(ops);
    CPU_NAME(cpu_fill_moments)(ops);
    CPU_NAME(cpu_fill_norm)(ops);
    CPU_NAME(cpu_fill_optim)(ops);
    CPU_NAME(cpu_fill_rows)(ops);
    CPU_NAME(cpu_fill_sink)(ops);
    CPU_NAME(cpu_fill_update)(ops);
    CPU_NAME(cpu_fill_update8)(ops);
    CPU_NAME(cpu_fill_xent)(ops);
}
