/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "topology/node/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_error err;
    int order[256];
    struct plait_node *node =
        plait_node_parse_nccl("fuzz", (const char *)data, size, &err);

    if (node && node->ngpus <= 256)
        plait_node_order_gpus(node, NULL, node->ngpus, 4, order);
    plait_node_destroy(node);
    return 0;
}
