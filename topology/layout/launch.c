/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/layout/launch.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Encoding and decoding walk the same tables of numbers and texts, so that
 * what is written and what is read cannot differ. */
struct number {
    const char *name;
    size_t offset;
    int least;
};

#define NUMBER(name, member, least)                        \
    {                                                      \
        name, offsetof(struct plait_launch, member), least \
    }

static const struct number numbers[] = {
    NUMBER(PLAIT_ENV_RANK, rank, 0),
    NUMBER("PLAIT_WORLD_SIZE", world_size, 1),
    NUMBER("PLAIT_LOCAL_RANK", local_rank, 0),
    NUMBER("PLAIT_LOCAL_WORLD_SIZE", local_world_size, 1),
    NUMBER("PLAIT_NODE_RANK", node_rank, 0),
    NUMBER("PLAIT_NNODES", nnodes, 1),
    NUMBER("PLAIT_TP_SIZE", layout.size[PLAIT_TP], 1),
    NUMBER("PLAIT_CP_SIZE", layout.size[PLAIT_CP], 1),
    NUMBER("PLAIT_EP_SIZE", layout.size[PLAIT_EP], 1),
    NUMBER("PLAIT_DP_SIZE", layout.size[PLAIT_DP], 1),
    NUMBER("PLAIT_PP_SIZE", layout.size[PLAIT_PP], 1),
    NUMBER("PLAIT_TP_RANK", coord.at[PLAIT_TP], 0),
    NUMBER("PLAIT_CP_RANK", coord.at[PLAIT_CP], 0),
    NUMBER("PLAIT_EP_RANK", coord.at[PLAIT_EP], 0),
    NUMBER("PLAIT_DP_RANK", coord.at[PLAIT_DP], 0),
    NUMBER("PLAIT_PP_RANK", coord.at[PLAIT_PP], 0),
    NUMBER("PLAIT_GPU", gpu, -1),
};

/* Launchers of other releases do not set it. */
static const struct number domain = NUMBER(PLAIT_ENV_DOMAIN, domain, 0);

/* What torchrun sets, from the same numbers. */
static const struct number torch_numbers[] = {
    NUMBER("RANK", rank, 0),
    NUMBER("WORLD_SIZE", world_size, 1),
    NUMBER("LOCAL_RANK", local_rank, 0),
    NUMBER("LOCAL_WORLD_SIZE", local_world_size, 1),
    NUMBER("NODE_RANK", node_rank, 0),
    NUMBER("GROUP_RANK", node_rank, 0),
    NUMBER(PLAIT_ENV_MASTER_PORT, master_port, 1),
};

#define TEXT(name, member)                             \
    {                                                  \
        name, offsetof(struct plait_launch, member),   \
            sizeof(((struct plait_launch *)0)->member) \
    }

static const struct text {
    const char *name;
    size_t offset, size;
} texts[] = {
    TEXT(PLAIT_ENV_GPU_BUSID, gpu_busid),
    TEXT(PLAIT_ENV_NICS, nics),
    TEXT("PLAIT_CPUS", cpus),
    TEXT("PLAIT_JOBID", jobid),
    TEXT(PLAIT_ENV_SECRET, secret),
};

static const struct text master_addr = TEXT(PLAIT_ENV_MASTER_ADDR, master_addr);
static const struct number master_port =
    NUMBER(PLAIT_ENV_MASTER_PORT, master_port, 1);

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

typedef int set_fn(void *arg, const char *name, const char *value);
typedef const char *get_fn(void *arg, const char *name);

static int set_numbers(const struct plait_launch *launch,
                       const struct number *list, size_t n, set_fn *set,
                       void *arg)
{
    for (size_t i = 0; i < n; i++) {
        const char *base = (const char *)launch + list[i].offset;
        char value[16];
        int number;

        memcpy(&number, base, sizeof(number));
        snprintf(value, sizeof(value), "%d", number);
        if (set(arg, list[i].name, value) < 0)
            return -1;
    }
    return 0;
}

int plait_launch_encode(const struct plait_launch *launch, int rendezvous,
                        int (*set)(void *arg, const char *name,
                                   const char *value),
                        void *arg)
{
    char order[16];

    plait_layout_format_order(&launch->layout, order);
    if (set(arg, PLAIT_ENV_ORDER, order) < 0 ||
        set_numbers(launch, numbers, COUNT(numbers), set, arg) < 0 ||
        set_numbers(launch, &domain, 1, set, arg) < 0)
        return -1;
    /* Empty values are set too: a task must not see those of an outer step. */
    for (size_t i = 0; i < COUNT(texts); i++)
        if (set(arg, texts[i].name, (const char *)launch + texts[i].offset) < 0)
            return -1;
    if (!rendezvous)
        return 0;
    if (set_numbers(launch, torch_numbers, COUNT(torch_numbers), set, arg) < 0)
        return -1;
    return set(arg, master_addr.name, launch->master_addr);
}

static int get_number(struct plait_launch *launch, const struct number *n,
                      get_fn *get, void *arg, struct plait_error *err)
{
    const char *text = get(arg, n->name);
    char *end;
    long value;
    int number;

    if (!text)
        return plait_errorf(err, "%s is not set, though PLAIT_RANK is",
                            n->name);
    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < n->least || value > INT_MAX ||
        !strchr("-0123456789", text[0]))
        return plait_errorf(err, "%s=%.40s must be a whole number >= %d",
                            n->name, text, n->least);
    number = (int)value;
    memcpy((char *)launch + n->offset, &number, sizeof(number));
    return 0;
}

static int get_text(struct plait_launch *launch, const struct text *t,
                    get_fn *get, void *arg, struct plait_error *err)
{
    const char *text = get(arg, t->name);

    if (!text)
        text = "";
    if (strlen(text) >= t->size)
        return plait_errorf(err, "%s is longer than %zu characters", t->name,
                            t->size - 1);
    strcpy((char *)launch + t->offset, text);
    return 0;
}

int plait_launch_check_secret(const char *secret, struct plait_error *err)
{
    size_t n = strspn(secret, "0123456789abcdef");

    if ((secret[n] == '\0' && (n == 0 || n >= 32)) ||
        strcmp(secret, PLAIT_NO_SECRET) == 0)
        return 0;
    return plait_errorf(err, "PLAIT_SECRET must be 32 to %d hex digits, or %s",
                        PLAIT_SECRET_SIZE - 1, PLAIT_NO_SECRET);
}

static int get_master(struct plait_launch *launch, get_fn *get, void *arg,
                      struct plait_error *err)
{
    if (get_text(launch, &master_addr, get, arg, err) < 0)
        return -1;
    if (!launch->master_addr[0])
        return 0;
    if (get_number(launch, &master_port, get, arg, err) < 0)
        return -1;
    if (launch->master_port > 65535)
        return plait_errorf(err, "MASTER_PORT=%d must be from 1 to 65535",
                            launch->master_port);
    return 0;
}

int plait_launch_check(const struct plait_launch *l, struct plait_error *err)
{
    struct plait_layout layout = l->layout;
    struct plait_coord coord;
    int first = l->rank - l->local_rank;

    if (plait_layout_resolve(&layout, l->world_size, err) < 0)
        return -1;
    if (l->rank >= l->world_size || l->local_rank >= l->local_world_size ||
        l->node_rank >= l->nnodes)
        return plait_errorf(err,
                            "rank %d of %d, local rank %d of %d, node rank %d "
                            "of %d: a rank must be less than its size",
                            l->rank, l->world_size, l->local_rank,
                            l->local_world_size, l->node_rank, l->nnodes);
    /* Ranks are dealt node by node, and every node has at least one. */
    if (first < l->node_rank || l->world_size - first - l->local_world_size <
                                    l->nnodes - 1 - l->node_rank)
        return plait_errorf(err,
                            "PLAIT_RANK=%d does not go with "
                            "PLAIT_LOCAL_RANK=%d of %d on node %d of %d",
                            l->rank, l->local_rank, l->local_world_size,
                            l->node_rank, l->nnodes);
    plait_layout_coord(&layout, l->rank, &coord);
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (coord.at[i] != l->coord.at[i])
            return plait_errorf(err,
                                "PLAIT_RANK=%d has %s coordinate %d in this "
                                "layout, but the environment says %d",
                                l->rank, plait_axis_names[i], coord.at[i],
                                l->coord.at[i]);
    return 0;
}

static const char *get_environment(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* For a process without a rank: 0, unless srun planned the step, or its job was
 * submitted with flags and nothing planned it. On a node that lacks the plugin
 * Slurm starts the tasks without the contract, and there srun makes no plan. */
static int check_unplanned(get_fn *get, void *arg, struct plait_error *err)
{
    const char *plan = get(arg, PLAIT_ENV_PLAN);
    const char *flags = get(arg, PLAIT_ENV_FLAGS);

    if (plan && *plan && strcmp(plan, PLAIT_NO_PLAN) != 0)
        plait_errorf(err, "srun planned this step, but PLAIT_RANK is not "
                          "set: this node lacks Slurm's plait plugin (see "
                          "plait doctor)");
    else if (!plan && flags && *flags && get(arg, "SLURM_STEP_ID"))
        plait_errorf(
            err,
            "the job was submitted with the flags %.60s, but "
            "this step has no plan: the node of its srun lacks "
            "Slurm's plait plugin (see plait doctor); unset " PLAIT_ENV_FLAGS
            " to start without a plan",
            flags);
    else
        return 0;
    errno = EINVAL;
    return -1;
}

int plait_launch_read(struct plait_launch *launch,
                      const char *(*get)(void *arg, const char *name),
                      void *arg, struct plait_error *err)
{
    struct plait_launch found;
    const char *order;

    if (!get)
        get = get_environment;
    if (!get(arg, PLAIT_ENV_RANK))
        return check_unplanned(get, arg, err);
    memset(&found, 0, sizeof(found));
    for (size_t i = 0; i < COUNT(numbers); i++)
        if (get_number(&found, &numbers[i], get, arg, err) < 0)
            goto error;
    if (get(arg, domain.name) && get_number(&found, &domain, get, arg, err) < 0)
        goto error;
    order = get(arg, PLAIT_ENV_ORDER);
    if (plait_layout_parse_order(order ? order : "", found.layout.order, err))
        goto error;
    for (size_t i = 0; i < COUNT(texts); i++)
        if (get_text(&found, &texts[i], get, arg, err) < 0)
            goto error;
    if (plait_launch_check_secret(found.secret, err) < 0 ||
        get_master(&found, get, arg, err) < 0)
        goto error;
    *launch = found;
    return 1;
error:
    errno = EINVAL;
    return -1;
}

int plait_launch_decode(struct plait_launch *launch,
                        const char *(*get)(void *arg, const char *name),
                        void *arg, struct plait_error *err)
{
    struct plait_launch found;
    int rc = plait_launch_read(&found, get, arg, err);

    if (rc == 1 && plait_launch_check(&found, err) < 0) {
        errno = EINVAL;
        return -1;
    }
    if (rc == 1)
        *launch = found;
    return rc;
}
