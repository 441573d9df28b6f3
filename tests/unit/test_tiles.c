/* SPDX-License-Identifier: Apache-2.0 */
/* The products by Intel's matrix unit against ref: over its instructions in
 * plain C (tile_model.h), and by the unit itself where there is one. */
#include "config.h"

#include <stdlib.h>

#include "cpu_tables.h"
#include "ops_trial.h"
#include "tap.h"

void cpu_fill_tiles_model(struct plait_ops *ops);
void cpu_fill_tiles_model_avx512(struct plait_ops *ops);

int main(void)
{
    static struct plait_ops table[3];
    const struct plait_ops *list[4] = {NULL};
    const char *why = NULL;
    int wide, n = 0;

    if (plait_cpu_isa(&why) == NULL)
        return skip_all(why);
    wide = cpu_isa() >= CPU_AVX512BF16 && cpu_isa() < CPU_NEON;
    /* in the quick tier with the packing of only one class */
    if (all_tier() || !wide)
        list[n++] = other_table(&table[0], "tiles in C", cpu_fill_tiles_model);
#ifdef HAVE_X86_VECTORS
    if (wide)
        list[n++] = other_table(&table[1], "tiles in C, packed by AVX-512",
                                cpu_fill_tiles_model_avx512);
#endif
#ifdef HAVE_X86_TILES
    if (cpu_may_use_tiles())
        list[n++] = other_table(&table[2], "tiles", cpu_fill_tiles_amx);
#endif
    setenv("PLAIT_TEST_CASES", "linear", 0);
    if (!all_tier()) /* without the largest */
        setenv("PLAIT_TEST_ELEMENTS", "250000", 0);
    return trial_run_all(list);
}
