/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "topology/fabric.h"

/* topology.conf, scontrol, YAML, addresses, ibnetdiscover: the reader
 * guesses which. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_error err;
    struct plait_fabric *fabric =
        plait_fabric_parse("fuzz", (const char *)data, size, &err);

    if (!fabric)
        return 0;
    for (int i = 0; i < plait_fabric_switches(fabric); i++)
        if (plait_fabric_parent(fabric, i) >= 0 &&
            plait_fabric_height(fabric, i) >=
                plait_fabric_height(fabric, plait_fabric_parent(fabric, i)))
            __builtin_trap();
    plait_fabric_distance(fabric, "n1", "n2");
    plait_fabric_destroy(fabric);
    return 0;
}
