/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"
#include "temp_path.h"
#include "topology/node/node.h"

/* Recorded machines. The numbers were read off the files by a person (PCI
 * classes and ids, OS devices, NUMANode objects, link matrices), not printed by
 * the code under test. An island here is two GPUs or more. */
static const struct {
    const char *file;
    int gpus, islands, numa, nics;
} machines[] = {
    /* Cisco VICs: three usnic devices and dozens of virtual functions */
    {"hwloc/16intel64-manyVFs.xml", 0, 0, 2, 3},
    /* three 10de:06d2; the fourth display device is an ES1000 */
    {"hwloc/24em64t-2n6c2t-pci.xml", 3, 0, 2, 1},
    {"hwloc/96em64t-4n4d3ca2co-pci.xml", 0, 0, 4, 0},
    {"hwloc/mpibind-coral-ea-hwloc1.xml", 4, 0, 2, 2},
    {"hwloc/mpibind-coral-lassen.xml", 4, 0, 2, 4},
    {"hwloc/mpibind-epyc-corona.xml", 4, 0, 8, 1},
    /* the EFA is rdmap197s0; eth0 is an ENA, not a NIC for training */
    {"hwloc/mpibind-g4dnmetal.xml", 8, 0, 2, 1},
    {"hwloc/power8gpudistances.xml", 4, 2, 2, 0},
    /* nine devices without a class, so that their kind is unknown */
    {"nccl/aws-g5.48xl-topo.xml", 0, 0, 2, 0},
    {"nccl/aws-p4d-24xl-topo.xml", 8, 0, 2, 4},
    /* every NVLink in this file connects a GPU with itself */
    {"nccl/azure-ncv4-topo.xml", 4, 0, 4, 1},
    {"nccl/azure-ndv4-topo.xml", 8, 0, 4, 8},
    {"nccl/simccl-topo_8A100_4CX6.xml", 8, 1, 2, 5},
};

/* Snapshots of /sys and /proc, for hwloc's own loader. */
static const struct {
    const char *file, *top;
    int gpus, islands, numa, nics;
} snapshots[] = {
    /* /proc/driver/nvidia/gpus lists six */
    {"hwloc/nvidiagpunumanodes.tar.bz2", "nvidiagpunumanodes", 6, 0, 2, 0},
    /* cpuset.mems.effective of the recorded cgroup: 0-5 */
    {"hwloc/32amd64-4s2n4c-cgroup2.tar.bz2", "32amd64-4s2n4c-cgroup", 0, 0, 6,
     0},
};

static int islands_of_several(const struct plait_node *node)
{
    int n = 0, i, k, members;

    for (i = 0; i < node->nislands; i++) {
        for (k = 0, members = 0; k < node->ngpus; k++)
            members += node->gpus[k].island == i;
        n += members > 1;
    }
    return n;
}

static void compare(const char *file, const struct plait_node *node, int gpus,
                    int islands, int numa, int nics, const char *why)
{
    if (!ok(node != NULL, "%s reads", file)) {
        diag("%s", why);
        return;
    }
    ok(node->ngpus == gpus, "%s: %d GPUs, %d expected", file, node->ngpus,
       gpus);
    ok(islands_of_several(node) == islands, "%s: %d islands, %d expected", file,
       islands_of_several(node), islands);
    ok(node->numa_nodes == numa, "%s: %d NUMA nodes, %d expected", file,
       node->numa_nodes, numa);
    ok(node->nnics == nics, "%s: %d NICs, %d expected", file, node->nnics,
       nics);
}

static void test_machines(const char *corpus)
{
    struct plait_error err;
    struct plait_node *node;
    char path[4096];
    size_t i;

    for (i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        err.text[0] = '\0';
        snprintf(path, sizeof(path), "%s/%s", corpus, machines[i].file);
        node = strncmp(machines[i].file, "nccl/", 5) == 0
                   ? plait_node_create_nccl(path, &err)
                   : plait_node_create_xml(path, &err);
        compare(machines[i].file, node, machines[i].gpus, machines[i].islands,
                machines[i].numa, machines[i].nics, err.text);
        plait_node_destroy(node);
    }
}

static int run(const char *const *argv)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return status;
}

static void test_snapshots(const char *corpus)
{
    char dir[TEMP_PATH], path[4096], root[4096];
    const char *unpack[] = {"tar", "-xjf", path, "-C", dir, NULL};
    const char *clean[] = {"rm", "-rf", dir, NULL};
    struct plait_error err = {""};
    struct plait_node *node;
    size_t i;

    if (!mkdtemp(temp_path(dir, "corpus"))) {
        ok(0, "a temporary directory");
        return;
    }
    for (i = 0; i < sizeof(snapshots) / sizeof(snapshots[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", corpus, snapshots[i].file);
        snprintf(root, sizeof(root), "%s/%s", dir, snapshots[i].top);
        if (run(unpack) != 0) {
            skip("tar with bzip2 is needed");
            continue;
        }
        setenv("HWLOC_FSROOT", root, 1);
        node = plait_node_create(1, &err);
        compare(snapshots[i].file, node, snapshots[i].gpus,
                snapshots[i].islands, snapshots[i].numa, snapshots[i].nics,
                err.text);
        plait_node_destroy(node);
    }
    unsetenv("HWLOC_FSROOT");
    run(clean);
}

/* Spot checks beyond the counts. */
static void test_details(const char *corpus)
{
    struct plait_error err = {""};
    struct plait_node *node;
    char path[4096];
    int i, good;

    snprintf(path, sizeof(path), "%s/nccl/simccl-topo_8A100_4CX6.xml", corpus);
    node = plait_node_create_nccl(path, &err);
    for (i = 0, good = node != NULL; good && i < 64; i++)
        good = node->links[i] == (i / 8 == i % 8 ? 0 : 300);
    ok(good, "simccl: 12 links of 25 GB/s between any two");
    plait_node_destroy(node);

    snprintf(path, sizeof(path), "%s/hwloc/power8gpudistances.xml", corpus);
    node = plait_node_create_xml(path, &err);
    ok(node && node->links[1] == 40 && node->links[2] == 0 &&
           node->links[11] == 40,
       "power8: pairs with 40 GB/s");
    plait_node_destroy(node);

    snprintf(path, sizeof(path), "%s/nccl/azure-ndv4-topo.xml", corpus);
    node = plait_node_create_nccl(path, &err);
    for (i = 0, good = node != NULL; good && i < 8; i++)
        good = node->gpus[i].nnics == 1 && node->gpus[i].nics[0] == i &&
               node->gpu_nic[i * 8 + i] == PLAIT_DIST_PIX;
    ok(good, "ndv4: eight GPUs, eight different NICs, one switch away");
    plait_node_destroy(node);

    snprintf(path, sizeof(path), "%s/hwloc/pyhwloc-sample_numa.xml", corpus);
    ok(!plait_node_create_xml(path, &err) && strstr(err.text, "format 3.0"),
       "%s", err.text);
    snprintf(path, sizeof(path), "%s/nccl/aws-g5.48xl-topo.xml", corpus);
    node = plait_node_create_nccl(path, &err);
    ok(node && node->unclassified == 9, "g5: nine devices left open");
    plait_node_destroy(node);
}

int main(void)
{
    const char *corpus = getenv("TOPOLOGY_CORPUS");

    if (!corpus || !corpus[0])
        return skip_all("no --with-topology-corpus");
    test_machines(corpus);
    test_snapshots(corpus);
    test_details(corpus);
    return done_testing();
}
