/* SPDX-License-Identifier: Apache-2.0 */
/* The variables in which communication libraries look for their NICs. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/start/seats.h"

enum { LIST_MOST = 1024 };

/* An empty value counts as the user's choice too. */
static bool is_set(const struct plait_task_env *env, const char *name)
{
    char text[2];

    errno = 0;
    return env->get(env->arg, name, text, sizeof(text)) == 0 || errno != ENOENT;
}

/* Append a name, whole or not at all. */
static void append(char *list, const char *name, const char *ending)
{
    size_t used = strlen(list);

    if (used + strlen(name) + strlen(ending) + 2 <= LIST_MOST)
        sprintf(list + used, "%s%s%s", used ? "," : "", name, ending);
}

static bool has_nic(const struct plait_gpu *gpu, int nic)
{
    for (int i = 0; i < gpu->nnics; i++)
        if (gpu->nics[i] == nic)
            return true;
    return false;
}

/* The NICs of this kind that the tasks of the node use together. NCCL refuses
 * to work where the tasks of one node see different ones (and chooses the one
 * near to each GPU by itself); its plugin for libfabric is part of it. */
static void list_all(const struct plait_seats *seats, enum plait_nic_kind kind,
                     char *list)
{
    const struct plait_node *node = seats->node;

    list[0] = '\0';
    for (int nic = 0; nic < node->nnics; nic++) {
        bool used = false;

        for (int i = 0; i < seats->binding.visible.n; i++)
            used |= has_nic(&node->gpus[seats->binding.gpu[i]], nic);
        if (used && node->nics[nic].kind == kind)
            append(list, node->nics[nic].name, "");
    }
}

/* UCX's devices of one task: an RDMA device has ports, a network interface
 * none. Slingshot's are reached by TCP. */
static void list_ucx(const struct plait_seats *seats, int local, char *list)
{
    const struct plait_node *node = seats->node;
    const struct plait_gpu *gpu = &node->gpus[seats->binding.gpu[local]];

    list[0] = '\0';
    for (int i = 0; i < gpu->nnics; i++) {
        const struct plait_nic *nic = &node->nics[gpu->nics[i]];

        if (nic->kind == PLAIT_NIC_VERBS)
            append(list, nic->name, ":1");
        else if (nic->interface[0])
            append(list, nic->interface, "");
    }
}

static int set_unset(const struct plait_task_env *env, const char *name,
                     const char *value)
{
    return is_set(env, name) ? 0 : env->set(env->arg, name, value);
}

int plait_seats_bind_nics(const struct plait_seats *seats,
                          const struct plait_task_env *env, int local)
{
    /* '=': exactly these names, not all with this prefix */
    char list[LIST_MOST + 1] = "=";

    if (!seats->binding.known || local >= seats->binding.visible.n)
        return 0;
    list_all(seats, PLAIT_NIC_VERBS, list + 1);
    if (seats->nccl && list[1] && set_unset(env, "NCCL_IB_HCA", list) < 0)
        return -1;
    list_all(seats, PLAIT_NIC_SLINGSHOT, list);
    if (seats->cxi && list[0] && set_unset(env, "FI_CXI_DEVICE_NAME", list) < 0)
        return -1;
    list_ucx(seats, local, list);
    return seats->ucx && list[0] ? set_unset(env, "UCX_NET_DEVICES", list) : 0;
}
