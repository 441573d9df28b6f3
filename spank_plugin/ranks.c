/* SPDX-License-Identifier: Apache-2.0 */
/* Says, in srun, that the ranks of a step are other numbers than SLURM_PROCID.
 */
#include "spank_plugin/ranks.h"

#include <stdbool.h>
#include <string.h>

#include "topology/layout/launch.h"
#include "topology/start/show_plan.h"

/* plait-train reads the plan's own variables. */
static bool starts_plait(spank_t spank)
{
    const char *name;
    char **words;
    int n;

    if (spank_get_item(spank, S_JOB_ARGV, &n, &words) != ESPANK_SUCCESS)
        return false;
    for (int i = 0; i < n; i++) {
        name = strrchr(words[i], '/');
        if (strcmp(name ? name + 1 : words[i], "plait-train") == 0)
            return true;
    }
    return false;
}

void plait_tell_ranks(spank_t spank, const struct plait_plan *plan,
                      const slurm_step_layout_t *step,
                      const struct plait_options *options,
                      const struct plait_site *site)
{
    char text[512];

    if (!step->tids || options->measure_only || plait_show_is_quiet() ||
        (site && !site->rank_warning) || starts_plait(spank))
        return;
    if (plait_show_ranks(plan, (const uint32_t *const *)step->tids,
                         options->rendezvous ? "RANK" : PLAIT_ENV_RANK, text,
                         sizeof(text)))
        slurm_info("plait: %s", text);
}
