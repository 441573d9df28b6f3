/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "topology/job/site.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_gpu_type type;
    struct plait_error err;
    struct plait_site *site =
        plait_site_parse("fuzz", (const char *)data, size, &err);

    if (site)
        plait_site_gpu_type(site, NULL, &type, &err);
    plait_site_destroy(site);
    return 0;
}
