/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "ops_trial.h"

#define TABLES 5

/* What plait_ops_cpu() chose, and what it would choose elsewhere. */
int main(void)
{
    static struct plait_ops table[TABLES];
    const struct plait_ops *list[TABLES + 1] = {plait_ops_cpu()};
    int n = 1;

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
    }
#endif
    return trial_run_all(list);
}
