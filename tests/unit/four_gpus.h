/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_FOUR_GPUS_H
#define PLAIT_TESTS_UNIT_FOUR_GPUS_H

#include "topology/node/node.h"

/* Four GPUs on an NCCL topology: 0-2 and 1-3 have NVLinks. */
static inline struct plait_node *four_gpus(void)
{
    static const char xml[] =
        "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" "
        "arch=\"x86_64\" vendor=\"GenuineIntel\">"
#define GPU(bus, dev, peer)                                                  \
    "<pci busid=\"0000:" bus ":00.0\" class=\"0x030200\" vendor=\"0x10de\" " \
    "link_speed=\"16 GT/s\" link_width=\"16\"><gpu dev=\"" dev               \
    "\" sm=\"80\" rank=\"" dev "\" gdr=\"1\"><nvlink target=\"0000:" peer    \
    ":00.0\" count=\"4\" tclass=\"0x030200\"/></gpu></pci>"
        GPU("10", "0", "30") GPU("20", "1", "40") GPU("30", "2", "10")
            GPU("40", "3", "20") "</cpu></system>";

    return plait_node_parse_nccl("four", xml, sizeof(xml) - 1, NULL);
}

#endif
