/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "topology/fabric/fabric.h"

/* n[1-9999] finds no more errors than n[1-99], and takes much longer. */
static int is_long(const uint8_t *data, size_t size)
{
    int digits = 0, inside = 0;

    for (size_t i = 0; i < size && digits < 3; i++) {
        if (data[i] == '[' || data[i] == ']')
            inside = data[i] == '[';
        digits = inside && data[i] >= '0' && data[i] <= '9' ? digits + 1 : 0;
    }
    return digits == 3;
}

/* topology.conf, scontrol, YAML, addresses, ibnetdiscover: the reader
 * guesses which. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_error err;
    struct plait_fabric *fabric;

    if (is_long(data, size))
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
