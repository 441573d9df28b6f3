/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_CPU_TABLES_H
#define PLAIT_TESTS_UNIT_CPU_TABLES_H

#include "config.h"

#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "tap.h"

#define CPU_TABLES 6

/* plait_ops_cpu() with the operations that `fill` enters in place of its own;
 * kept in `table` */
static inline const struct plait_ops *
other_table(struct plait_ops *table, const char *name,
            void (*fill)(struct plait_ops *ops))
{
    *table = *plait_ops_cpu();
    table->name = name;
    fill(table);
    return table;
}

/* Lists, with NULL at the end, the tables to test: what plait_ops_cpu() chose;
 * unless PLAIT_CPU_ISA prescribes that, what it would choose on processors with
 * fewer instructions, of which the quick tier takes the least; and all products
 * by the libraries. */
static inline void list_cpu_tables(const struct plait_ops *list[CPU_TABLES + 1])
{
    static struct plait_ops table[CPU_TABLES];
    int n = 0;

    list[n++] = plait_ops_cpu();
    if (getenv("PLAIT_CPU_ISA") == NULL) {
        if (cpu_isa() != CPU_BASE && cpu_isa() != CPU_NEON)
            list[n++] = other_table(&table[0], "cpu, no vector extensions",
                                    cpu_fill_base);
#ifdef HAVE_X86_VECTORS
        if (all_tier() && cpu_isa() > CPU_AVX2)
            list[n++] = other_table(&table[1], "cpu, AVX2", cpu_fill_avx2);
        if (all_tier() && cpu_isa() > CPU_AVX512)
            list[n++] = other_table(&table[2], "cpu, AVX-512 without bf16",
                                    cpu_fill_avx512);
        if (all_tier() && cpu_isa() > CPU_AVX512BF16)
            list[n++] = other_table(&table[3], "cpu, AVX-512 without AMX",
                                    cpu_fill_avx512bf16);
#endif
        if (all_tier())
            list[n++] = other_table(&table[4], "cpu, products by libraries",
                                    cpu_fill_linear);
    }
    list[n] = NULL;
}

#endif
