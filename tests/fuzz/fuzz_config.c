/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "topology/job/job_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const set[] = {"train.steps=5"};
    struct plait_error err;

    plait_job_config_destroy(
        plait_job_config_parse("fuzz", (const char *)data, size, set, 1, &err));
    return 0;
}
