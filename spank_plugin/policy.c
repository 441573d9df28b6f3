/* SPDX-License-Identifier: Apache-2.0 */
#include "spank_plugin/policy.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

/* Is `word` one of the parts of "gpu:h100:8(S:0-1),nic:2"? */
static int has_word(const char *text, const char *word)
{
    static const char ends[] = ":,=()";

    while (*text) {
        size_t n = strcspn(text, ends);

        if (n == strlen(word) && strncasecmp(text, word, n) == 0)
            return 1;
        text += n;
        text += strspn(text, ends);
    }
    return 0;
}

static int policy_applies(const struct plait_policy *policy,
                          const struct plait_job *job)
{
    if (policy->partition &&
        (!job->partition || fnmatch(policy->partition, job->partition, 0)))
        return 0;
    return !policy->gpu || (job->gpus && has_word(job->gpus, policy->gpu));
}

int plait_policy_check(const struct plait_site *site,
                       const struct plait_job *job,
                       const struct plait_layout *layout,
                       enum plait_within *within, struct plait_error *err)
{
    enum plait_within found = PLAIT_WITHIN_NODE;

    for (int i = 0; i < site->npolicies; i++) {
        const struct plait_policy *policy = &site->policies[i];

        if (!policy_applies(policy, job))
            continue;
        for (int a = 0; a < PLAIT_NAXES; a++)
            if (policy->most[a] && layout->size[a] > policy->most[a]) {
                errno = EPERM;
                return plait_errorf(
                    err, "--%s=%d, but %s%s allows --%s=%d at most",
                    plait_axis_names[a], layout->size[a],
                    policy->partition || !policy->gpu ? "this partition"
                                                      : "a GPU of type ",
                    policy->partition || !policy->gpu ? "" : policy->gpu,
                    plait_axis_names[a], policy->most[a]);
            }
        if (policy->tp_within > found)
            found = policy->tp_within;
    }
    *within = found;
    return 0;
}
