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

/* Does the pattern match one of the names in "a,b"? */
static int matches(const char *pattern, const char *names)
{
    char name[256];
    size_t n;

    for (; names; names = names[n] ? names + n + 1 : NULL) {
        n = strcspn(names, ",");
        if (n >= sizeof(name))
            return 1; /* no such name exists: rather refused */
        memcpy(name, names, n);
        name[n] = '\0';
        if (fnmatch(pattern, name, 0) == 0)
            return 1;
    }
    return 0;
}

static int policy_applies(const struct plait_policy *policy,
                          const struct plait_job *job)
{
    const char *const keys[][2] = {{policy->partition, job->partition},
                                   {policy->user, job->user},
                                   {policy->account, job->account},
                                   {policy->qos, job->qos}};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i][0] && !matches(keys[i][0], keys[i][1]))
            return 0;
    return !policy->gpu || (job->gpus && has_word(job->gpus, policy->gpu));
}

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
                       const struct plait_job *job,
                       const struct plait_layout *layout,
                       enum plait_within *within, struct plait_error *err)
{
    enum plait_within found = PLAIT_WITHIN_NODE;

    for (int i = 0; i < site->npolicies; i++) {
        const struct plait_policy *policy = &site->policies[i];

        if (!policy_applies(policy, job))
            continue;
        if (check_policy(policy, layout, err) < 0)
            return -1;
        if (policy->tp_within > found)
            found = policy->tp_within;
    }
    *within = found;
    return 0;
}

int plait_policy_matters(const struct plait_site *site,
                         const struct plait_layout *layout,
                         enum plait_within within)
{
    for (int i = 0; i < site->npolicies; i++)
        if (check_policy(&site->policies[i], layout, NULL) < 0 ||
            site->policies[i].tp_within > within)
            return 1;
    return 0;
}
