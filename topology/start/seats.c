/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/seats.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A step sees some of its node's GPUs, which Slurm lists in the environment.
 * The tasks get them in an order in which the GPUs of a tp group are near each
 * other (plait_binding_fill), and all see the same list in that order:
 * LOCAL_RANK is the index of a task's own GPU, and copies between the GPUs of a
 * node keep working.
 *
 * The plan was made without looking at this node. So what the site requires of
 * tp groups is checked here, where the islands of its GPUs are known. */

/* Bytes that the name of a GPU may take in a list: a UUID is the longest. */
enum { NAME_ROOM = 68 };

/* With fewer GPUs than tasks, ranks would share one, which NCCL refuses. */
static int check_gpus(const struct plait_seats *seats, struct plait_error *err)
{
    int n = seats->binding.visible.n, tasks = seats->launch.local_world_size;

    if (n == 0 || n >= tasks || seats->keep_gpu)
        return 0;
    return plait_errorf(err,
                        "this node has %d tasks but %d GPU%s; use "
                        "--gpus-per-node=%d, or --pin=none to share",
                        tasks, n, n == 1 ? "" : "s", tasks);
}

/* The size of the largest NVLink island among the step's GPUs here. */
static int largest_island(const struct plait_seats *seats)
{
    int most = 1;

    for (int i = 0; i < seats->binding.visible.n; i++) {
        int island = seats->node->gpus[seats->binding.gpu[i]].island, n = 0;

        for (int k = 0; k < seats->binding.visible.n; k++)
            n += seats->node->gpus[seats->binding.gpu[k]].island == island;
        most = n > most ? n : most;
    }
    return most;
}

/* "tp must stay within NVLink": all GPUs of a tp group are in one island. A
 * group that leaves the node does so within a block, whose nodes are linked, or
 * in an order that the user gave. Tasks without a GPU of their own (--gpu-bind)
 * have none to compare. */
static int check_islands(const struct plait_seats *seats,
                         struct plait_error *err)
{
    const struct plait_layout *layout = &seats->launch.layout;
    int n = seats->launch.local_world_size;

    if (!seats->nvlink || !seats->binding.known)
        return 0;
    if (layout->order[0] != PLAIT_TP &&
        !plait_layout_keeps_tp(layout, seats->first_rank, n))
        return plait_errorf(err,
                            "this site keeps tp within NVLink, but the rank "
                            "order takes the --tp=%d groups out of the node; "
                            "begin it with tp",
                            layout->size[PLAIT_TP]);
    n = n < seats->binding.visible.n ? n : seats->binding.visible.n;
    for (int i = 0; i < n; i++) {
        struct plait_coord c;
        int first;

        plait_layout_coord(layout, seats->first_rank + i, &c);
        c.at[PLAIT_TP] = 0;
        first = plait_layout_rank(layout, &c) - seats->first_rank;
        first = first < 0 ? 0 : first;
        if (seats->node->gpus[seats->binding.gpu[i]].island !=
            seats->node->gpus[seats->binding.gpu[first]].island)
            return plait_errorf(
                err,
                "this site keeps tp within NVLink, but the GPUs of a "
                "--tp=%d group are not linked; at most %d of this "
                "node's are",
                layout->size[PLAIT_TP], largest_island(seats));
    }
    return 0;
}

const char *plait_seats_variable(const char *vendor)
{
    if (strcmp(vendor, "amd") == 0)
        return "ROCR_VISIBLE_DEVICES";
    return strcmp(vendor, "intel") == 0 ? "ZE_AFFINITY_MASK"
                                        : PLAIT_ENV_VISIBLE;
}

static int count_vendor(const struct plait_node *node, const char *vendor)
{
    int n = 0;

    for (int i = 0; i < node->ngpus; i++)
        n += strcmp(node->gpus[i].vendor, vendor) == 0;
    return n;
}

const char *plait_seats_vendor(const struct plait_node *node)
{
    static const char *const vendors[] = {"nvidia", "amd", "intel"};
    const char *best = vendors[0];

    for (int i = 1; i < 3; i++)
        if (count_vendor(node, vendors[i]) > count_vendor(node, best))
            best = vendors[i];
    return best;
}

/* Level Zero counts tiles, unless this variable says COMPOSITE. */
static bool counts_cards(const struct plait_task_env *env)
{
    char text[32];

    return env->get(env->arg, "ZE_FLAT_DEVICE_HIERARCHY", text, sizeof(text)) ==
               0 &&
           strcmp(text, "COMPOSITE") == 0;
}

void plait_seats_list_gpus(const struct plait_node *node,
                           const struct plait_task_env *env, char *text,
                           size_t size)
{
    const char *vendor = plait_seats_vendor(node);
    bool cards = strcmp(vendor, "intel") == 0 && counts_cards(env);
    size_t used = 0;
    int count = 0;

    text[0] = '\0';
    for (int i = 0; i < node->ngpus && used + NAME_ROOM < size; i++) {
        const struct plait_gpu *gpu = &node->gpus[i];

        /* A file without ids has GPUs of no vendor. */
        if ((gpu->vendor[0] && strcmp(gpu->vendor, vendor) != 0) ||
            (cards && gpu->part > 0))
            continue;
        used +=
            plait_gpu_is_mig(gpu)
                ? (size_t)sprintf(text + used, "%s%s", used ? "," : "",
                                  gpu->uuid)
                : (size_t)sprintf(text + used, "%s%d", used ? "," : "", count);
        count++;
    }
}

/* Only a match that is sure is used. Else tasks get even shares, which may be
 * far from their GPUs: that is said. */
static void note_unknown(struct plait_seats *seats,
                         const struct plait_error *why)
{
    plait_errorf(&seats->note,
                 "%.300s; so the tasks share the cores evenly, without regard "
                 "to GPUs and NICs (--pin=none: as Slurm has them)",
                 why->text);
}

int plait_seats_bind_gpus(struct plait_seats *seats,
                          const struct plait_task_env *env,
                          struct plait_error *err)
{
    const char *vendor = plait_seats_vendor(seats->node);
    struct plait_visible visible, step;
    struct plait_error why = {""};
    char gpus[PLAIT_VISIBLE_MOST * NAME_ROOM];

    seats->variable = plait_seats_variable(vendor);
    env->get(env->arg, seats->variable, seats->visible, sizeof(seats->visible));
    if (env->get(env->arg, "SLURM_STEP_GPUS", gpus, sizeof(gpus)) < 0)
        env->get(env->arg, "SLURM_JOB_GPUS", gpus, sizeof(gpus));
    if (plait_visible_parse(gpus, &step, err) < 0)
        return -1;
    /* Without GPUs from Slurm the variable is one that the user has set. */
    if (step.n == 0)
        seats->visible[0] = '\0';
    if (plait_visible_parse(seats->visible, &visible, err) < 0)
        return -1;
    visible.vendor = vendor;
    visible.cards = strcmp(vendor, "intel") == 0 && counts_cards(env);
    plait_binding_fill(&seats->binding, &visible, &step, seats->node,
                       seats->launch.layout.size[PLAIT_TP], &why);
    if (why.text[0] && visible.n > 0)
        note_unknown(seats, &why);
    if (check_gpus(seats, err) < 0)
        return -1;
    return check_islands(seats, err);
}
