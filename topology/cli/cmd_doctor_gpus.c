/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "topology/base/capture.h"
#include "topology/cli/cmd_doctor.h"
#include "topology/node/domain.h"
#include "topology/node/health.h"
#include "topology/node/node.h"
#include "topology/start/port.h"

/* This machine's GPUs, NICs and ports. */

/* Drivers of broken devices may not answer. */
enum { HEALTH_SECONDS = 20 };

static bool has_unknown_order(const struct plait_node *node)
{
    for (int i = 0; i < node->ngpus; i++)
        if (strcmp(node->gpus[i].vendor, "amd") == 0 &&
            node->gpus[i].number < 0)
            return true;
    return false;
}

static void check_driver(struct findings *f)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (!nvml || access("/proc/driver/nvidia/version", R_OK) < 0)
        findings_add(f, FINDING_BAD, "driver",
                     "there are NVIDIA GPUs, but %s; without the driver "
                     "they do not work, and their NVLinks are unknown",
                     nvml ? "the driver is not loaded (modprobe nvidia)"
                          : "no libnvidia-ml.so.1 is installed");
    else
        findings_add(f, FINDING_GOOD, "driver",
                     "the NVIDIA driver and its NVML are installed");
    if (nvml)
        dlclose(nvml);
}

static bool has_links(const struct plait_node *node)
{
    for (int i = 0; i < node->ngpus * node->ngpus; i++)
        if (node->links[i] > 0)
            return true;
    return false;
}

static void check_links(const struct plait_node *node, struct findings *f)
{
    char odd[256];

    if (has_unknown_order(node))
        findings_add(f, FINDING_NOTE, "order",
                     "the order in which ROCm counts these GPUs is not known "
                     "(no /sys/class/kfd: is the driver amdgpu loaded?), so "
                     "that tasks are not bound near to theirs");
    if (plait_node_find_odd(node, odd, sizeof(odd)))
        findings_add(f, FINDING_BAD, "links", "%s", odd);
    if (node->ngpus > 1 && !has_links(node))
        findings_add(f, FINDING_NOTE, "links",
                     "no NVLink or xGMI between these GPUs: tensor "
                     "parallelism goes over PCIe, so keep --tp small");
}

/* "8 GPUs (NVIDIA H100 80GB HBM3), linked in 1 island" */
static void check_gpus(const struct plait_node *node, struct findings *f)
{
    int nvidia = 0;

    if (!node->ngpus) {
        findings_add(f, FINDING_NOTE, "gpus",
                     "no GPU on the PCI bus of this machine");
        return;
    }
    for (int i = 0; i < node->ngpus; i++)
        nvidia += strcmp(node->gpus[i].vendor, "nvidia") == 0;
    findings_add(f, FINDING_GOOD, "gpus", "%d GPU%s (%s)%s", node->ngpus,
                 node->ngpus == 1 ? "" : "s",
                 node->gpus[0].model[0] ? node->gpus[0].model
                                        : "of unknown model",
                 has_links(node) ? ", linked" : "");
    if (nvidia)
        check_driver(f);
    check_links(node, f);
}

static void check_nics(const struct plait_node *node, struct findings *f)
{
    struct rlimit limit = {0};

    if (!node->nnics) {
        findings_add(f, FINDING_NOTE, "nics",
                     "no InfiniBand, RoCE or other fabric NIC: between nodes "
                     "there is only TCP");
        return;
    }
    findings_add(f, FINDING_GOOD, "nics", "%d NIC%s, the first is %s",
                 node->nnics, node->nnics == 1 ? "" : "s", node->nics[0].name);
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < (1u << 30))
        findings_add(f, FINDING_BAD, "memlock",
                     "only %llu KiB of memory may be locked (ulimit -l), and "
                     "RDMA needs more; set LimitMEMLOCK=infinity for slurmd "
                     "and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
                     (unsigned long long)limit.rlim_cur / 1024);
    else
        findings_add(f, FINDING_GOOD, "memlock",
                     "memory may be locked for RDMA");
}

/* What the preflight of a step looks at, here for all devices. Memory in use is
 * that of jobs. A NIC without a cable is no fault of the machine: it is only
 * said. */
static void check_health(const struct plait_node *node, struct findings *f)
{
    const char **names =
        calloc((size_t)(node->ngpus + node->nnics) + 1, sizeof(*names));
    struct plait_health_of of = {.root = "", .gpus = names};
    struct plait_health health = {0};
    int bad = 0;

    if (!names)
        return;
    for (int i = 0; i < node->ngpus; i++)
        if (node->gpus[i].busid[0] && node->gpus[i].part <= 0)
            names[of.ngpus++] = node->gpus[i].busid;
    of.nics = names + of.ngpus;
    for (int i = 0; i < node->nnics; i++)
        names[of.ngpus + of.nnics++] = node->nics[i].name;
    plait_health_look(&of, HEALTH_SECONDS, &health);
    for (int i = 0; i < health.n; i++) {
        bool gpu = strncmp(health.found[i].text, "GPU ", 4) == 0 ||
                   strncmp(health.found[i].text, "the drivers ", 12) == 0;
        bool is_bad = gpu && health.found[i].kind == PLAIT_HEALTH_BAD;

        bad += is_bad;
        findings_add(f, is_bad ? FINDING_BAD : FINDING_NOTE, "health", "%s%s",
                     health.found[i].text,
                     is_bad ? "; drain the node until that is mended" : "");
    }
    if (of.ngpus && !bad)
        findings_add(f, FINDING_GOOD, "health",
                     "no GPU has errors, as far as its driver says");
    free(names);
}

/* The ports of MASTER_PORT lie below Linux's ephemeral ports, unless the
 * administrator has widened their range. */
static void check_port_range(struct findings *f)
{
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    int low, high;

    if (!file)
        return;
    if (fscanf(file, "%d %d", &low, &high) == 2 &&
        low < PLAIT_PORT_FIRST + PLAIT_PORTS)
        findings_add(f, FINDING_NOTE, "ephemeral",
                     "this machine's ephemeral ports begin at %d; "
                     "MASTER_PORT collides less often with "
                     "net.ipv4.ip_local_port_range = 32768 %d",
                     low, high > 32768 ? high : 60999);
    fclose(file);
}

/* IMEX lets programs on several nodes share memory over NVLink: without it NCCL
 * uses the network. */
static void check_imex(const struct plait_domain *domain, const char *switches,
                       struct findings *f)
{
    if (domain->imex)
        findings_add(f, FINDING_GOOD, "imex",
                     "an IMEX channel is there, so NVLink also works between "
                     "the nodes of the domain");
    else if (strstr(switches, "nvidia_imex"))
        findings_add(f, FINDING_GOOD, "imex",
                     "Slurm (%s) gives each job its IMEX channel", switches);
    else
        findings_add(f, FINDING_BAD, "imex",
                     "NVLink joins these GPUs with those of other nodes, but "
                     "there is no channel in /dev/nvidia-caps-imex-channels, "
                     "so NCCL uses the network between them; start "
                     "nvidia-imex on all nodes and set "
                     "SwitchType=switch/nvidia_imex in slurm.conf, or "
                     "NVreg_CreateImexChannel0=1 for the nvidia module");
}

static void check_domain(const struct doctor *doctor)
{
    struct findings *f = doctor->findings;
    struct plait_domain domain;
    char switches[128];

    if (plait_domain_ask(HEALTH_SECONDS, &domain) < 0) {
        findings_add(f, FINDING_BAD, "domain",
                     "NVML, asked for the NVLink domain of the GPUs: %s",
                     errno == ETIMEDOUT ? "the driver does not answer"
                                        : strerror(errno));
        return;
    }
    switch (domain.state) {
    case PLAIT_DOMAIN_NONE:
        return;
    case PLAIT_DOMAIN_STARTING:
    case PLAIT_DOMAIN_FAILED:
        findings_add(f, FINDING_BAD, "domain",
                     "the GPUs %s the NVLink fabric of their rack; look at the "
                     "fabric manager (nvidia-smi -q, \"Fabric\")",
                     domain.state == PLAIT_DOMAIN_FAILED ? "have failed to join"
                                                         : "are still joining");
        return;
    case PLAIT_DOMAIN_MIXED:
        findings_add(f, FINDING_BAD, "domain",
                     "the GPUs of this machine are not all in the same NVLink "
                     "domain (nvidia-smi -q, \"ClusterUUID\" and "
                     "\"CliqueId\")");
        return;
    case PLAIT_DOMAIN_READY:
        break;
    }
    findings_add(
        f, FINDING_NOTE, "domain",
        "the GPUs are in the NVLink domain %s; nodes with the same one "
        "should be one block of Slurm's topology",
        domain.name);
    doctor_setting(doctor, "SwitchType", switches, sizeof(switches));
    check_imex(&domain, switches, f);
}

static void try_discovery(void *arg, int fd)
{
    struct plait_error ignored;

    (void)arg;
    (void)fd;
    plait_node_destroy(plait_node_create(1, &ignored));
}

/* Whether the drivers that hwloc and NVML ask let them go on: tried in a child
 * process first. */
static bool has_answer(void)
{
    size_t size;
    char *text = plait_capture_call(try_discovery, NULL, HEALTH_SECONDS, &size);
    bool late = !text && errno == ETIMEDOUT;

    free(text);
    return !late;
}

void doctor_check_machine(const struct doctor *doctor)
{
    struct findings *f = doctor->findings;
    struct plait_node *node;
    struct plait_error err;

    check_port_range(f);
    if (!has_answer()) {
        findings_add(f, FINDING_BAD, "hwloc",
                     "this machine could not be discovered in %d s: a driver "
                     "does not answer",
                     HEALTH_SECONDS);
        return;
    }
    node = plait_node_create(1, &err);
    if (!node) {
        findings_add(f, FINDING_BAD, "hwloc", "%s", err.text);
        return;
    }
    findings_add(f, FINDING_GOOD, "hwloc",
                 "hwloc %s sees %d core%s and %d NUMA node%s", HWLOC_VERSION,
                 node->cores, node->cores == 1 ? "" : "s", node->numa_nodes,
                 node->numa_nodes == 1 ? "" : "s");
    check_gpus(node, f);
    check_domain(doctor);
    check_nics(node, f);
    check_health(node, f);
    plait_node_destroy(node);
}
