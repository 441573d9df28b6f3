/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/policy_match.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Is `word` one of the parts of "gpu:h100:8(S:0-1),nic:2"? */
static bool has_word(const char *text, const char *word)
{
    static const char ends[] = ":,=()";

    while (*text) {
        size_t n = strcspn(text, ends);

        if (n == strlen(word) && strncasecmp(text, word, n) == 0)
            return true;
        text += n;
        text += strspn(text, ends);
    }
    return false;
}

/* Does the pattern match one of the names in "a,b"? */
static bool matches(const char *pattern, const char *names)
{
    char name[256];
    size_t n;

    for (; names; names = names[n] ? names + n + 1 : NULL) {
        n = strcspn(names, ",");
        if (n >= sizeof(name))
            return true; /* no such name exists: rather refused */
        memcpy(name, names, n);
        name[n] = '\0';
        if (fnmatch(pattern, name, 0) == 0)
            return true;
    }
    return false;
}

bool plait_policy_applies(const struct plait_policy *policy,
                          const struct plait_policy_job *job)
{
    const char *const keys[][2] = {{policy->partition, job->partition},
                                   {policy->user, job->user},
                                   {policy->account, job->account},
                                   {policy->qos, job->qos}};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i][0] && !matches(keys[i][0], keys[i][1]))
            return false;
    return !policy->gpu || (job->gpus && has_word(job->gpus, policy->gpu));
}
