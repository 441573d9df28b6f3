/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_CPU_TABLES_H
#define PLAIT_TESTS_UNIT_CPU_TABLES_H

#include "config.h"

#include "kernels/cpu/cpu.h"

#define CPU_TABLES 4

/* What plait_ops_cpu() chose, and what it would choose on processors with
 * fewer instructions; a list that ends with NULL. */
static inline void list_cpu_tables(const struct plait_ops *list[CPU_TABLES + 1])
{
    static struct plait_ops table[CPU_TABLES];
    int n = 0;

    list[n++] = plait_ops_cpu();
    table[n] = *list[0];
    table[n].name = "cpu, no vector extensions";
    cpu_fill_base(&table[n]);
    list[n] = &table[n];
    n++;
#ifdef HAVE_X86_VECTORS
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        table[n] = *list[0];
        table[n].name = "cpu, AVX2";
        cpu_fill_avx2(&table[n]);
        list[n] = &table[n];
        n++;
    }
    if (__builtin_cpu_supports("avx512bf16")) {
        table[n] = *list[0];
        table[n].name = "cpu, AVX-512 without bf16, products by libraries";
        cpu_fill_avx512(&table[n]);
        cpu_fill_linear(&table[n]);
        list[n] = &table[n];
        n++;
    }
#endif
    list[n] = NULL;
}

#endif
