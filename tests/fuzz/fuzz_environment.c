/* SPDX-License-Identifier: Apache-2.0 */
#include <hwloc.h>

#include "fuzz.h"
#include "fuzz_lines.h"
#include "spank_plugin/seat.h"
#include "topology/hostlist.h"
#include "topology/launch.h"

/* What a user can put into the environment of a step and of a task. */

static int set(void *arg, const char *name, const char *value)
{
    const char *was = fuzz_lines_get(arg, name);

    /* Leading zeros may go. The others are torchrun's names. */
    if (strncmp(name, "PLAIT_", 6) == 0 && was && strcmp(was, value) != 0 &&
        atol(was) != atol(value))
        __builtin_trap();
    return 0;
}

static void read_launch(struct fuzz_lines *lines)
{
    struct plait_launch launch;
    struct plait_error err;

    if (plait_launch_decode(&launch, fuzz_lines_get, lines, &err) == 1)
        plait_launch_encode(&launch, launch.master_port != 0, set, lines);
}

static int count(void *arg, const char *name)
{
    if (!*name)
        __builtin_trap();
    return ++*(int *)arg < 1000 ? 0 : -1;
}

static void read_seats(struct fuzz_lines *lines, const struct plait_node *node)
{
    struct plait_visible visible, step;
    struct plait_launch launch = {0};
    struct plait_seats seats;
    uint64_t seen = 0;
    int i;

    if (plait_visible_parse(fuzz_lines_get(lines, "CUDA_VISIBLE_DEVICES"),
                            &visible, NULL) < 0 ||
        plait_visible_parse(fuzz_lines_get(lines, "SLURM_STEP_GPUS"), &step,
                            NULL) < 0)
        return;
    memset(&seats, 0, sizeof(seats));
    plait_seats_fill(&seats, &visible, &step, node, 2, "/nowhere");
    for (i = 0; i < visible.n; i++) {
        if (seats.permuted[i] < 0 || seats.permuted[i] >= visible.n)
            __builtin_trap();
        seen |= UINT64_C(1) << seats.permuted[i];
        plait_seats_describe(&seats, node, i, &launch);
    }
    if (visible.n > 0 && seen != UINT64_MAX >> (64 - visible.n))
        __builtin_trap();
}

/* Four GPUs; NVLink joins the first to the third, the second to the fourth. */
static struct plait_node *four_gpus(void)
{
    static const char xml[] =
        "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" "
        "arch=\"x86_64\" vendor=\"GenuineIntel\">"
#define GPU(bus, dev, peer)                                                    \
    "<pci busid=\"0000:" bus ":00.0\" class=\"0x030200\" vendor=\"0x10de\" "   \
    "link_speed=\"16 GT/s\" link_width=\"16\"><gpu dev=\"" dev                 \
    "\" sm=\"80\" rank=\"" dev "\" gdr=\"1\"><nvlink target=\"0000:" peer      \
    ":00.0\" count=\"4\" tclass=\"0x030200\"/></gpu></pci>"
        GPU("10", "0", "30") GPU("20", "1", "40") GPU("30", "2", "10")
            GPU("40", "3", "20") "</cpu></system>";

    return plait_node_parse_nccl("four", xml, sizeof(xml) - 1, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct plait_node *node;
    static hwloc_bitmap_t cpus;
    struct fuzz_lines lines;
    struct plait_error err;
    const char *text;
    int n = 0;

    if (!node) {
        node = four_gpus();
        cpus = hwloc_bitmap_alloc();
        if (!node || !cpus)
            abort();
    }
    fuzz_lines_create(&lines, data, size);
    read_launch(&lines);
    read_seats(&lines, node);
    text = fuzz_lines_get(&lines, "SLURM_CPU_BIND_LIST");
    if (text)
        plait_seats_parse_masks(text, cpus);
    text = fuzz_lines_get(&lines, "SLURM_STEP_NODELIST");
    if (text)
        plait_hostlist_each(text, strlen(text), count, &n, &err);
    fuzz_lines_destroy(&lines);
    return 0;
}
