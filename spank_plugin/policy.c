/* SPDX-License-Identifier: Apache-2.0 */
#include "spank_plugin/policy.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Who sets the limit, as the subject of a sentence. */
static const char *name_policy(const struct plait_policy *policy)
{
    return policy->partition ? "this partition"
           : policy->gpu     ? "a GPU of type "
           : policy->user    ? "the site for this user"
           : policy->account ? "this account"
           : policy->qos     ? "this QOS"
                             : "this cluster";
}

static int check_policy(const struct plait_policy *policy,
                        const struct plait_layout *layout,
                        struct plait_error *err)
{
    const char *type = policy->partition || !policy->gpu ? "" : policy->gpu;

    errno = EPERM;
    if (!policy->enabled)
        return plait_errorf(err,
                            "%s%s allows no planned steps; leave out the "
                            "layout flags",
                            name_policy(policy), type);
    for (int a = 0; a < PLAIT_NAXES; a++)
        if (policy->most[a] && layout->size[a] > policy->most[a])
            return plait_errorf(err, "--%s=%d, but %s%s allows --%s=%d at most",
                                plait_axis_names[a], layout->size[a],
                                name_policy(policy), type, plait_axis_names[a],
                                policy->most[a]);
    return 0;
}

int plait_policy_check(const struct plait_site *site,
                       const struct plait_policy_job *job,
                       const struct plait_layout *layout,
                       enum plait_within *within, struct plait_error *err)
{
    enum plait_within found = PLAIT_WITHIN_NODE;

    for (int i = 0; i < site->npolicies; i++) {
        const struct plait_policy *policy = &site->policies[i];

        if (!plait_policy_applies(policy, job))
            continue;
        if (check_policy(policy, layout, err) < 0)
            return -1;
        if (policy->tp_within > found)
            found = policy->tp_within;
    }
    *within = found;
    return 0;
}

bool plait_policy_matters(const struct plait_site *site,
                          const struct plait_layout *layout,
                          enum plait_within within)
{
    for (int i = 0; i < site->npolicies; i++)
        if (check_policy(&site->policies[i], layout, NULL) < 0 ||
            site->policies[i].tp_within > within)
            return true;
    return false;
}
