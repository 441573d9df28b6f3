/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/binding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ZE_AFFINITY_MASK says which of Intel's GPUs are visible, but not in which
 * order: that stays the one of the PCI bus. */
static void sort_ascending(const int *index, int n, int *order)
{
    for (int i = 0; i < n; i++) {
        int at = 0;

        for (int k = 0; k < n; k++)
            at += index[k] < index[i];
        order[at] = index[i];
    }
}

void plait_binding_fill(struct plait_binding *binding,
                        const struct plait_visible *visible,
                        const struct plait_visible *step,
                        const struct plait_node *node, int tp,
                        struct plait_error *err)
{
    int index[PLAIT_VISIBLE_MOST], order[PLAIT_VISIBLE_MOST];

    binding->visible = *visible;
    binding->known = visible->n > 0 && step->n > 0 &&
                     plait_visible_match(visible, step, node, index, err) == 0;
    for (int i = 0; i < visible->n; i++) {
        char *end;
        long id = strtol(visible->id[i], &end, 10);

        binding->permuted[i] = i;
        binding->gpu[i] = *end || id < 0 || id > 4095 ? -1 : (int)id;
    }
    if (!binding->known)
        return;
    if (visible->vendor && strcmp(visible->vendor, "intel") == 0)
        sort_ascending(index, visible->n, order);
    else
        plait_node_order_gpus(node, index, visible->n, tp, order);
    for (int i = 0; i < visible->n; i++) {
        binding->gpu[i] = order[i];
        for (int k = 0; k < visible->n; k++)
            if (index[k] == order[i])
                binding->permuted[i] = k;
    }
}

int plait_binding_parse_masks(const char *text, hwloc_bitmap_t set)
{
    hwloc_bitmap_t one = hwloc_bitmap_alloc(), all = hwloc_bitmap_alloc();
    char mask[1024];
    int rc = one && all ? 0 : -1;

    while (rc == 0) {
        size_t length = strcspn(text, ",");

        /* hwloc stops at what is not a digit, without an error. */
        if (length < 3 || length >= sizeof(mask) ||
            strncmp(text, "0x", 2) != 0 ||
            strspn(text + 2, "0123456789abcdefABCDEF") != length - 2) {
            rc = -1;
            break;
        }
        memcpy(mask, text, length);
        mask[length] = '\0';
        rc = hwloc_bitmap_taskset_sscanf(one, mask);
        hwloc_bitmap_or(all, all, one);
        text += length;
        if (!*text++)
            break;
    }
    if (rc == 0)
        hwloc_bitmap_copy(set, all);
    hwloc_bitmap_free(one);
    hwloc_bitmap_free(all);
    return rc;
}

void plait_binding_describe(const struct plait_binding *binding,
                            const struct plait_node *node, int local,
                            struct plait_launch *launch)
{
    const struct plait_gpu *gpu;
    size_t used = 0;

    launch->gpu = local < binding->visible.n ? binding->gpu[local] : -1;
    if (!binding->known || launch->gpu < 0)
        return;
    gpu = &node->gpus[launch->gpu];
    snprintf(launch->gpu_busid, sizeof(launch->gpu_busid), "%s", gpu->busid);
    for (int i = 0; i < gpu->nnics; i++) {
        const char *name = node->nics[gpu->nics[i]].name;
        size_t room = sizeof(launch->nics) - used;
        int n =
            snprintf(launch->nics + used, room, "%s%s", used ? "," : "", name);

        if (n < 0 || (size_t)n >= room) {
            launch->nics[used] = '\0'; /* whole names only */
            break;
        }
        used += (size_t)n;
    }
}
