/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs of a node the entries of a visible-devices variable name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/start/visible.h"

enum { NUMBER_MOST = 4095 };

/* A number up to NUMBER_MOST, or -1. */
static int parse_number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || value > NUMBER_MOST)
        return -1;
    return (int)value;
}

/* What is looked for, and in which list. */
struct match {
    const struct plait_visible *visible;
    const struct plait_node *node;
    const char *vendor;
    int step[PLAIT_VISIBLE_MOST], nstep; /* Slurm's numbers, ascending */
    /* The GPUs that are visible in a device cgroup, in the order of their
     * numbers; npool is -1 where they are not known. */
    int pool[PLAIT_VISIBLE_MOST], npool;
};

static bool is_of(const struct match *m, int gpu)
{
    const char *vendor = m->node->gpus[gpu].vendor;

    return strcmp(vendor[0] ? vendor : "nvidia", m->vendor) == 0;
}

/* The GPU that the library gives this number, or -1. */
static int find_number(const struct match *m, int number)
{
    for (int i = 0; i < m->node->ngpus; i++)
        if (is_of(m, i) && m->node->gpus[i].number == number)
            return i;
    return -1;
}

/* The first part of card `number` in PCI order, or -1. */
static int find_card(const struct match *m, int number)
{
    for (int i = 0; i < m->node->ngpus; i++)
        if (is_of(m, i) && m->node->gpus[i].part == 0 && number-- == 0)
            return i;
    return -1;
}

/* The GPU with the `number`th device file, -1 where files are not known. */
static int find_file(const struct match *m, int number)
{
    for (int i = 0; i < m->node->ngpus; i++) {
        int before = 0;

        if (!is_of(m, i))
            continue;
        for (int k = 0; k < m->node->ngpus; k++) {
            if (!is_of(m, k))
                continue;
            if (m->node->gpus[k].file < 0)
                return -1;
            before += m->node->gpus[k].file < m->node->gpus[i].file;
        }
        if (before == number)
            return i;
    }
    return -1;
}

static int count_own(const struct match *m)
{
    int n = 0;

    for (int i = 0; i < m->node->ngpus; i++)
        n += is_of(m, i);
    return n;
}

static int compare_numbers(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* ---- the GPUs of a device cgroup ---- */

/* Slurm counts AMD's device files, and ROCm then the GPUs in its own order. */
static void fill_pool_amd(struct match *m)
{
    int numbers[PLAIT_VISIBLE_MOST], all = m->nstep == count_own(m);

    for (int i = 0; i < m->nstep; i++) {
        int gpu = all ? find_number(m, i) : find_file(m, m->step[i]);

        if (gpu < 0 || m->node->gpus[gpu].number < 0)
            return;
        numbers[i] = m->node->gpus[gpu].number;
    }
    qsort(numbers, (size_t)m->nstep, sizeof(numbers[0]), compare_numbers);
    for (int i = 0; i < m->nstep; i++)
        m->pool[i] = find_number(m, numbers[i]);
    m->npool = m->nstep;
}

/* Slurm counts Intel's cards. */
static void fill_pool_intel(struct match *m)
{
    int n = 0;

    for (int i = 0; i < m->nstep; i++) {
        int card = find_card(m, m->step[i]);
        int parts = card < 0 ? 0 : m->node->gpus[card].parts;

        if (card < 0)
            return;
        if (m->visible->cards)
            parts = 1;
        for (int k = 0; k < parts && n < PLAIT_VISIBLE_MOST; k++)
            m->pool[n++] = card + k;
    }
    m->npool = n;
}

static void fill_pool(struct match *m)
{
    m->npool = -1;
    if (strcmp(m->vendor, "amd") == 0) {
        fill_pool_amd(m);
        return;
    }
    if (strcmp(m->vendor, "intel") == 0) {
        fill_pool_intel(m);
        return;
    }
    for (int i = 0; i < m->nstep; i++) {
        m->pool[i] = find_number(m, m->step[i]);
        if (m->pool[i] < 0)
            return;
    }
    m->npool = m->nstep;
}

/* ---- numbers ---- */

/* "3", or of a card's tile "3.1" */
static int read_entry(const struct match *m, int i, int *tile)
{
    const char *text = m->visible->id[i], *dot = strchr(text, '.');
    char card[16];

    *tile = -1;
    if (!dot || !m->visible->cards)
        return parse_number(text);
    *tile = parse_number(dot + 1);
    if (*tile < 0 || dot - text >= (long)sizeof(card))
        return -1;
    snprintf(card, sizeof(card), "%.*s", (int)(dot - text), text);
    return parse_number(card);
}

/* The GPU of entry `i`, counted among those of the node or of the cgroup. */
static int find_entry(const struct match *m, int i, bool in_cgroup)
{
    int tile, number = read_entry(m, i, &tile), gpu;

    if (number < 0)
        return -1;
    if (in_cgroup)
        gpu = number < m->npool ? m->pool[number] : -1;
    else
        gpu = m->visible->cards ? find_card(m, number) : find_number(m, number);
    if (gpu >= 0 && tile >= m->node->gpus[gpu].parts)
        return -1;
    return gpu >= 0 && tile > 0 ? gpu + tile : gpu;
}

/* All entries that are numbers; -1: one of them is none, or not found. */
static int find_entries(const struct match *m, bool in_cgroup, int *index)
{
    for (int i = 0; i < m->visible->n; i++) {
        index[i] = find_entry(m, i, in_cgroup);
        if (index[i] < 0)
            return -1;
        for (int k = 0; k < i; k++)
            if (index[k] == index[i])
                return -1; /* "1" and "01" are one GPU */
    }
    return 0;
}

/* Are the entries among Slurm's numbers? In a cgroup they need not be, and
 * without one Intel's tiles are more than the cards that Slurm counts. */
static bool are_in_step(const struct match *m)
{
    int tile;

    for (int i = 0; i < m->visible->n; i++) {
        int number = read_entry(m, i, &tile);

        if (!bsearch(&number, m->step, (size_t)m->nstep, sizeof(number),
                     compare_numbers))
            return false;
    }
    return true;
}

static int refuse_number(const struct match *m, struct plait_error *err)
{
    bool is_amd = strcmp(m->vendor, "amd") == 0;

    if (is_amd && find_number(m, 0) < 0)
        return plait_errorf(err, "the order in which ROCm counts this node's "
                                 "GPUs is not known (no /sys/class/kfd)");
    return plait_errorf(err,
                        "GPU %s of this step is none of the %d that this "
                        "node's topology has, or not the one that Slurm means",
                        m->visible->id[0], count_own(m));
}

static int match_numbers(const struct match *m, int *index,
                         struct plait_error *err)
{
    int other[PLAIT_VISIBLE_MOST];
    int in_cgroup = find_entries(m, true, other);

    if (!are_in_step(m)) {
        if (in_cgroup < 0)
            return refuse_number(m, err);
        memcpy(index, other, (size_t)m->visible->n * sizeof(*index));
        return 0;
    }
    if (find_entries(m, false, index) < 0)
        return refuse_number(m, err);
    /* The same numbers with and without a cgroup: AMD's may then mean
     * different GPUs. */
    if (strcmp(m->vendor, "amd") == 0 && in_cgroup == 0 &&
        memcmp(index, other, (size_t)m->visible->n * sizeof(*index)) != 0)
        return plait_errorf(err, "Slurm and ROCm count this node's GPUs in "
                                 "different orders");
    return 0;
}

/* ---- UUIDs ---- */

static bool is_taken(const int *index, int n, int gpu)
{
    for (int i = 0; i < n; i++)
        if (index[i] == gpu)
            return true;
    return false;
}

/* CUDA takes the beginning of a UUID, too, if it is that of one GPU. Before 470
 * an instance was called MIG-<UUID of its GPU>/<gpu instance>/<compute
 * instance>; any of the GPU's is near to the same cores. */
static int find_uuid(const struct match *m, const char *id, const int *index,
                     int n)
{
    const char *gpu = strncmp(id, "MIG-GPU-", 8) == 0 ? id + 4 : id;
    size_t length = strcspn(gpu, "/");
    int found = -1;

    for (int i = 0; i < m->node->ngpus; i++) {
        const struct plait_gpu *at = &m->node->gpus[i];

        if (!is_of(m, i) || !at->uuid[0] || is_taken(index, n, i) ||
            strncmp(at->uuid, gpu, length) != 0)
            continue;
        if (found < 0)
            found = i;
        else if (strcmp(m->node->gpus[found].busid, at->busid) != 0)
            return -1;
    }
    return found;
}

static int match_uuids(const struct match *m, int *index,
                       struct plait_error *err)
{
    for (int i = 0; i < m->visible->n; i++) {
        index[i] = find_uuid(m, m->visible->id[i], index, i);
        if (index[i] < 0)
            return plait_errorf(err,
                                "GPU %s is none that this node's topology has "
                                "(made after it was cached?)",
                                m->visible->id[i]);
    }
    return 0;
}

static bool is_uuid(const char *id)
{
    return strncmp(id, "GPU-", 4) == 0 || strncmp(id, "MIG-", 4) == 0;
}

int plait_visible_match(const struct plait_visible *visible,
                        const struct plait_visible *step,
                        const struct plait_node *node, int *index,
                        struct plait_error *err)
{
    struct match m = {.visible = visible,
                      .node = node,
                      .vendor = visible->vendor ? visible->vendor : "nvidia"};
    int tile;

    errno = EINVAL;
    for (int i = 0; i < visible->n; i++)
        if (is_uuid(visible->id[i]))
            return match_uuids(&m, index, err);
    for (int i = 0; i < visible->n; i++)
        if (read_entry(&m, i, &tile) < 0)
            return plait_errorf(err, "GPU %s is neither a number nor a UUID",
                                visible->id[i]);
    for (m.nstep = 0; m.nstep < step->n; m.nstep++) {
        m.step[m.nstep] = parse_number(step->id[m.nstep]);
        if (m.step[m.nstep] < 0)
            return plait_errorf(err, "Slurm's GPU %s is no number",
                                step->id[m.nstep]);
    }
    qsort(m.step, (size_t)m.nstep, sizeof(m.step[0]), compare_numbers);
    fill_pool(&m);
    return match_numbers(&m, index, err);
}
