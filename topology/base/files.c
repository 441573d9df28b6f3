/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/files.h"

#include <sys/resource.h>

#define OTHER_FILES 256 /* that the process may have open */

void plait_files_allow(size_t files)
{
    rlim_t want = (rlim_t)files + OTHER_FILES;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}
