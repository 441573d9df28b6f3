/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "topology/fabric.h"

/* topology.conf, scontrol, YAML, addresses, ibnetdiscover: the reader
 * guesses which. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_error err;
    struct plait_fabric *fabric;
    int digits = 0;

    /* n[1-99999] tells nothing more than n[1-9999], and takes much longer. */
    for (size_t i = 0; i < size && digits < 5; i++)
        digits = data[i] >= '0' && data[i] <= '9' ? digits + 1 : 0;
    if (digits == 5)
        return 0;
    fabric = plait_fabric_parse("fuzz", (const char *)data, size, &err);
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
