/* SPDX-License-Identifier: Apache-2.0 */
#include <hwloc.h>

#include "fuzz.h"
#include "fuzz_lines.h"
#include "tests/unit/four_gpus.h"
#include "topology/base/hostlist.h"
#include "topology/layout/launch.h"
#include "topology/start/binding.h"

/* Variables that a user can set in the environment of a step and of a task. */

static int set(void *arg, const char *name, const char *value)
{
    const char *was = fuzz_lines_get(arg, name);

    /* Leading zeros may get lost. The other names are torchrun's. */
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
    struct plait_binding binding;
    struct plait_error err;
    uint64_t seen = 0;
    int i;

    if (plait_visible_parse(fuzz_lines_get(lines, "CUDA_VISIBLE_DEVICES"),
                            &visible, NULL) < 0 ||
        plait_visible_parse(fuzz_lines_get(lines, "SLURM_STEP_GPUS"), &step,
                            NULL) < 0)
        return;
    memset(&binding, 0, sizeof(binding));
    plait_binding_fill(&binding, &visible, &step, node, 2, &err);
    for (i = 0; i < visible.n; i++) {
        if (binding.permuted[i] < 0 || binding.permuted[i] >= visible.n)
            __builtin_trap();
        seen |= UINT64_C(1) << binding.permuted[i];
        plait_binding_describe(&binding, node, i, &launch);
    }
    if (visible.n > 0 && seen != UINT64_MAX >> (64 - visible.n))
        __builtin_trap();
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
        plait_binding_parse_masks(text, cpus);
    text = fuzz_lines_get(&lines, "SLURM_STEP_NODELIST");
    if (text) {
        plait_hostlist_each(text, strlen(text), count, &n, &err);
        plait_hostlist_tasks(text, 3);
    }
    fuzz_lines_destroy(&lines);
    return 0;
}
