/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "topology/base/text.h"
#include "topology/cli/cmd_doctor.h"
#include "topology/cli/commands.h"
#include "topology/job/site.h"
#include "topology/node/cache.h"
#include "topology/node/node.h"

/* plait doctor: what is wrong, one sentence for each finding. */

static const char *const kinds[] = {"good", "note", "bad"};

void findings_add(struct findings *findings, enum finding_kind kind,
                  const char *about, const char *fmt, ...)
{
    struct finding *finding = &findings->list[findings->n];
    va_list ap;

    if (findings->n == FINDINGS_MOST)
        return;
    findings->n++;
    finding->kind = kind;
    finding->about = about;
    va_start(ap, fmt);
    vsnprintf(finding->text, sizeof(finding->text), fmt, ap);
    va_end(ap);
    plait_text_clean(finding->text);
}

/* "8 GPUs (NVIDIA H100 80GB HBM3), linked in 1 island" */
static void check_gpus(const struct plait_node *node, struct findings *f)
{
    int nvidia = 0, linked = 0;

    if (!node->ngpus) {
        findings_add(f, FINDING_NOTE, "gpus",
                     "no GPU on the PCI bus of this machine");
        return;
    }
    for (int i = 0; i < node->ngpus; i++)
        nvidia += strcmp(node->gpus[i].vendor, "nvidia") == 0;
    for (int i = 0; i < node->ngpus * node->ngpus; i++)
        linked |= node->links[i] > 0;
    findings_add(f, FINDING_GOOD, "gpus", "%d GPU%s (%s)%s", node->ngpus,
                 node->ngpus == 1 ? "" : "s",
                 node->gpus[0].model[0] ? node->gpus[0].model
                                        : "of unknown model",
                 linked ? ", linked" : "");
    if (nvidia) {
        void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);

        if (!nvml || access("/proc/driver/nvidia/version", R_OK) < 0)
            findings_add(f, FINDING_BAD, "driver",
                         "there are NVIDIA GPUs, but %s; without the driver "
                         "they do not work, and their NVLinks are unknown",
                         nvml ? "the driver is not loaded (modprobe nvidia)"
                              : "no libnvidia-ml.so.1 is installed");
        else
            findings_add(f, FINDING_GOOD, "driver",
                         "the NVIDIA driver and its NVML are there");
        if (nvml)
            dlclose(nvml);
    }
    if (node->ngpus > 1 && !linked)
        findings_add(f, FINDING_NOTE, "links",
                     "no NVLink or xGMI between these GPUs: tensor "
                     "parallelism goes over PCIe, so keep --tp small");
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

static void check_machine(struct findings *f)
{
    struct plait_error err;
    struct plait_node *node = plait_node_create(1, &err);

    if (!node) {
        findings_add(f, FINDING_BAD, "hwloc", "%s", err.text);
        return;
    }
    findings_add(f, FINDING_GOOD, "hwloc",
                 "hwloc %s sees %d core%s and %d NUMA node%s", HWLOC_VERSION,
                 node->cores, node->cores == 1 ? "" : "s", node->numa_nodes,
                 node->numa_nodes == 1 ? "" : "s");
    check_gpus(node, f);
    check_nics(node, f);
    plait_node_destroy(node);
}

static void check_cache(const struct plugin_setup *setup, struct findings *f)
{
    struct plait_error err;

    if (!setup->cache[0])
        findings_add(f, FINDING_NOTE, "cache",
                     "plugstack.conf says cache=none: each step with flags "
                     "discovers its nodes' topology anew");
    else if (plait_node_check_cache_dir(setup->cache, &err) < 0)
        findings_add(f, errno == ENOENT ? FINDING_NOTE : FINDING_BAD, "cache",
                     "%s; %s", err.text,
                     errno == ENOENT
                         ? "slurmd makes it when it starts with the plugin "
                           "(login nodes need none)"
                         : "the plugin does not use it: remove it, or chown "
                           "root and chmod 755");
    else if (plait_node_check_cache(setup->cache, &err) == 0)
        findings_add(f, FINDING_GOOD, "cache",
                     "%s/node.xml holds this machine's topology", setup->cache);
    else
        findings_add(f, FINDING_NOTE, "cache",
                     "%s; slurmd writes it when it starts, and the next "
                     "step with flags if it does not (login nodes need none)",
                     err.text);
}

static void check_site(const struct plugin_setup *setup, struct findings *f)
{
    const char *path = setup->site[0] ? setup->site : plait_site_path();
    struct plait_error err;
    struct plait_site *site = path ? plait_site_create(path, &err) : NULL;

    if (!path)
        findings_add(f, FINDING_NOTE, "site",
                     "no site file (%s): the figures built in are used",
                     PLAIT_SITE_FILE);
    else if (!site)
        findings_add(f, FINDING_BAD, "site", "%s", err.text);
    else
        findings_add(f, FINDING_GOOD, "site", "%s is in order", path);
    plait_site_destroy(site);
}

/* The ports of MASTER_PORT lie above Linux's ephemeral ports, unless the
 * administrator has widened their range. */
static void check_port_range(struct findings *f)
{
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    int low, high;

    if (!file)
        return;
    if (fscanf(file, "%d %d", &low, &high) == 2 && high > 61002)
        findings_add(f, FINDING_NOTE, "ephemeral",
                     "this machine's ephemeral ports go up to %d; "
                     "MASTER_PORT is safer with "
                     "net.ipv4.ip_local_port_range = %d 60999",
                     high, low < 60000 ? low : 32768);
    fclose(file);
}

static void print_text(const struct findings *f)
{
    static const char *const marks[] = {"ok", "--", "!!"};
    int bad = 0;

    for (int i = 0; i < f->n; i++) {
        printf("%s  %-10s %s\n", marks[f->list[i].kind], f->list[i].about,
               f->list[i].text);
        bad += f->list[i].kind == FINDING_BAD;
    }
    if (bad)
        printf("\n%d thing%s to be put right (!!).\n", bad,
               bad == 1 ? " is" : "s are");
    else
        printf("\nNothing is wrong.\n");
}

static json_t *to_json(const struct findings *f, int good)
{
    json_t *checks = json_array();

    for (int i = 0; i < f->n; i++)
        json_array_append_new(checks, json_pack("{s:s,s:s,s:s}", "about",
                                                f->list[i].about, "kind",
                                                kinds[f->list[i].kind], "text",
                                                f->list[i].text));
    return json_pack("{s:b,s:o}", "good", good, "checks", checks);
}

static int print_help(void)
{
    printf("Usage: plait doctor [OPTION...]\n\n"
           "Check this machine, Slurm and the plugin in it, and say "
           "what is wrong\nand what to do about it. Exits with 1 if "
           "something is wrong. Run it on a\ncompute node too: srun plait "
           "doctor\n\n"
           "  --json             print one JSON document\n"
           "  --help             print this\n");
    return PLAIT_EXIT_GOOD;
}

static int run_doctor(int json)
{
    struct plugin_setup setup = {.cache = PLAIT_CACHEDIR};
    struct findings *f = calloc(1, sizeof(*f));
    int good = 1, rc = PLAIT_EXIT_GOOD;

    if (!f)
        return plait_cmd_failed("out of memory");
    doctor_check_slurm(f, &setup);
    check_cache(&setup, f);
    check_site(&setup, f);
    check_port_range(f);
    check_machine(f);
    for (int i = 0; i < f->n; i++)
        good &= f->list[i].kind != FINDING_BAD;
    if (json)
        rc = plait_cmd_json(to_json(f, good));
    else
        print_text(f);
    free(f);
    return rc != PLAIT_EXIT_GOOD ? rc
           : good                ? PLAIT_EXIT_GOOD
                                 : PLAIT_EXIT_FAILED;
}

int plait_cmd_doctor(int argc, char **argv)
{
    enum { JSON = 256 };
    static const struct option options[] = {{"json", no_argument, NULL, JSON},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int json = 0, opt;

    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (opt) {
        case JSON:
            json = 1;
            break;
        case 'h':
            return print_help();
        default:
            return PLAIT_EXIT_USAGE; /* getopt_long has said why */
        }
    }
    if (optind < argc)
        return plait_cmd_misused("doctor: unexpected argument '%s'",
                                 argv[optind]);
    return run_doctor(json);
}
